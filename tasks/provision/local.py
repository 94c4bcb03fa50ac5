"""Start the local nodes of a run."""

import os
import sys

from infra.pool import LocalPool
from tasks.provision.config import ProvisionConfig


def local_pool(config: ProvisionConfig) -> LocalPool:
    """A pool of `python -m tasks.provision.worker` processes; start it with `with`."""
    threads = str(config.threads)
    env = dict(os.environ) | {
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "TOKENIZERS_PARALLELISM": "false",
        # A node works from local files; a hub that is asked for nothing cannot hang it.
        "HF_HUB_OFFLINE": os.environ.get("HF_HUB_OFFLINE", "1"),
        "TRACEMILL_ENGINE_THREADS": threads,
    }
    command = [sys.executable, "-m", "tasks.provision.worker"]
    return LocalPool(config.node_count(), command, env)
