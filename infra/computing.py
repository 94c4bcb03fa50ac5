"""The environment of a process that computes with a model."""

import os

KEPT_BYTES = 2**30
LARGEST_KEPT = 2**25
"""The most that glibc lets anybody set (`mallopt(3)`, M_MMAP_THRESHOLD)."""


def computing_environment(threads: int) -> dict[str, str]:
    """This process's environment with the threads of libraries, for a child that computes.

    The child keeps the memory that a step gives back, for the next step takes as much again: to
    return it to the kernel and get it back page by page costs up to as much as the computing.
    """
    return dict(os.environ) | {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "MALLOC_TRIM_THRESHOLD_": str(KEPT_BYTES),
        "MALLOC_MMAP_THRESHOLD_": str(LARGEST_KEPT),
        "TOKENIZERS_PARALLELISM": "false",
        # It works from local files; a hub that is asked for nothing cannot hang it.
        "HF_HUB_OFFLINE": os.environ.get("HF_HUB_OFFLINE", "1"),
    }
