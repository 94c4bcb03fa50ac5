"""The process of a node that does the jobs: `python -m tasks.provision.worker`.

Speaks the protocol of infra/pool/agent/worker.py on what was stdout at the start; everything that
libraries print goes to stderr. Ends when stdin closes, also in the middle of a job, so that it
never outlives its agent. It loads a model with the first job that needs it, and signs what it makes
with the node's key, which lies in the file that TRACEMILL_NODE_KEY names.

Invariant: with `--stranger`, for a pool that is not its operator's own, it does no jobs that name a
storage root: the pool could have it read with this user's rights and credentials.
"""

import json
import os
import queue
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from infra.inference import load_engine
from infra.inference.protocol import Engine
from infra.pool.agent.identity import NODE_KEY, load_key
from tasks.generate.work import generate_shard
from tasks.train.rollouts.check import RolloutCheck
from tasks.train.rollouts.policy import Policies
from tasks.train.rollouts.work import RolloutWork
from tasks.validate.work import validate_shard
from toploc.signing import SigningKey

RESIDENT_MODELS = 4
"""Models kept in memory; the one used longest ago is dropped first."""

MAX_ERROR_CHARS = 2000

Output = dict[str, Any]
Work = Callable[[dict[str, Any], Callable[[str], Engine], Path], Output]
"""(payload, engine of a model, directory for what is to be uploaded) -> output."""


def load_models(payload: dict[str, Any], engine_of: Callable[[str], Engine]) -> dict[str, Any]:
    """Load models and say what they take; the rehearsal of a run."""
    revisions = [engine_of(model).revision[:12] for model in payload["models"]]
    resident = psutil.Process().memory_info().rss
    return {"models": len(revisions), "memory_mb": resident >> 20}


def works(
    key: SigningKey, progress: Callable[[float], None] = lambda share: None, *, trusted: bool = True
) -> dict[str, Work]:
    """What a node can do, by the kind of the job; `trusted`: for a pool of its own operator."""
    policies = Policies()
    found: dict[str, Work] = {
        "generate": partial(generate_shard, key=key, progress=progress),
        "rollouts": RolloutWork(key, policies),
    }
    if trusted:
        found |= {
            "check_rollouts": _uploads_nothing(RolloutCheck(policies)),
            "load": _uploads_nothing(load_models),
            "validate": _uploads_nothing(validate_shard),
        }
    return found


def _uploads_nothing(work: Callable[[dict[str, Any], Callable[[str], Engine]], Output]) -> Work:
    return lambda payload, engine_of, out: work(payload, engine_of)


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


def answer(
    job: dict[str, Any], work: dict[str, Work], engines: Callable[[str], Engine]
) -> dict[str, Any]:
    """Run one job; an exception becomes an answer, because the node itself is fine."""
    started = time.perf_counter()
    try:
        output = work[job["kind"]](job["payload"], engines, Path(job["out"]))
    except Exception as error:
        return {
            "job_id": job["job_id"],
            "error_kind": type(error).__name__,
            "error": str(error)[:MAX_ERROR_CHARS],
        }
    return {
        "job_id": job["job_id"],
        "output": output,
        "seconds": time.perf_counter() - started,
        "files": sorted(path.name for path in Path(job["out"]).iterdir()),
    }


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

    def send(line: dict[str, Any]) -> None:
        replies.write(json.dumps(line).encode() + b"\n")
        replies.flush()

    key = load_key(Path(os.environ[NODE_KEY]))
    send({"node_id": key.node_id})
    trusted = "--stranger" not in sys.argv[1:]
    work = works(key, lambda share: send({"progress": share}), trusted=trusted)
    engines = Engines(int(os.environ.get("TRACEMILL_ENGINE_THREADS", "1")))
    while True:
        send(answer(json.loads(jobs.get()), work, engines))


if __name__ == "__main__":
    main()
