"""The process that is one local node: `python -m tasks.provision.worker`.

Reads one JSON job per line from stdin, answers with one JSON line on what was stdout at the start;
everything that libraries print goes to stderr. Ends when stdin closes, also in the middle of a job,
so that it never outlives its pool. It loads a model with the first job that needs it.
"""

import json
import os
import queue
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import psutil

from infra.inference import load_engine
from infra.inference.protocol import Engine
from tasks.generate.work import generate_shard
from tasks.validate.work import validate_shard

RESIDENT_MODELS = 4
"""Models kept in memory; the one used longest ago is dropped first."""

MAX_ERROR_CHARS = 2000

Work = Callable[[dict[str, Any], Callable[[str], Engine]], dict[str, Any]]


def load_models(payload: dict[str, Any], engine_of: Callable[[str], Engine]) -> dict[str, Any]:
    """Load models and say what they take; the rehearsal of a run."""
    revisions = [engine_of(model).revision[:12] for model in payload["models"]]
    resident = psutil.Process().memory_info().rss
    return {"models": len(revisions), "memory_mb": resident >> 20}


WORK: dict[str, Work] = {
    "generate": generate_shard,
    "load": load_models,
    "validate": validate_shard,
}


class Engines:
    """The loaded models of this node."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._loaded: OrderedDict[str, Engine] = OrderedDict()

    def __call__(self, model_id: str) -> Engine:
        """The engine of a model, loaded if need be."""
        if model_id not in self._loaded:
            while len(self._loaded) >= RESIDENT_MODELS:
                self._loaded.popitem(last=False)[1].close()
            self._loaded[model_id] = load_engine(model_id, self._threads)
        self._loaded.move_to_end(model_id)
        return self._loaded[model_id]


def answer(job: dict[str, Any], engines: Callable[[str], Engine]) -> dict[str, Any]:
    """Run one job; an exception becomes an answer, because the node itself is fine."""
    started = time.perf_counter()
    try:
        output = WORK[job["kind"]](job["payload"], engines)
    except Exception as error:
        return {
            "job_id": job["job_id"],
            "error_kind": type(error).__name__,
            "error": str(error)[:MAX_ERROR_CHARS],
        }
    return {"job_id": job["job_id"], "output": output, "seconds": time.perf_counter() - started}


def main() -> None:
    """Serve jobs until stdin closes."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    jobs: queue.Queue[bytes] = queue.Queue()

    def read() -> None:
        for line in sys.stdin.buffer:
            jobs.put(line)
        # The pool is gone: whatever is being computed, nobody waits for it.
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    engines = Engines(int(os.environ.get("TRACEMILL_ENGINE_THREADS", "1")))
    while True:
        reply = answer(json.loads(jobs.get()), engines)
        replies.write(json.dumps(reply).encode() + b"\n")
        replies.flush()


if __name__ == "__main__":
    main()
