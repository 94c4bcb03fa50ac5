"""One independent random stream per task, the same in every process and on every machine."""

import random


def stream(maker: str, seed: int, index: int) -> random.Random:
    """Seed by a string: Python hashes it with SHA-512, so PYTHONHASHSEED plays no part."""
    return random.Random(f"tracemill-maker/{maker}/{seed}/{index}")
