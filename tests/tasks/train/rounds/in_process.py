"""Nodes and a trainer in this process: rounds take seconds, and the test orders them."""

import hashlib
import json
import queue
import tempfile
import threading
from concurrent.futures import Future
from pathlib import Path

from infra.pool import Job, JobResult, Upload
from infra.storage import Store
from tasks.provision.worker import works
from tasks.train.trainer import selection_path, weights_path
from tasks.train.trainer.main import main
from toploc.signing import SigningKey


class Nodes:
    """A pool of one node that generates and one that checks, each a thread."""

    def __init__(self, store: Store):
        self._store = store
        self.asked: list[Job] = []
        self._queues = {"rollouts": queue.PriorityQueue(), "check_rollouts": queue.PriorityQueue()}
        self._count = 0
        self._threads = [
            threading.Thread(target=self._work, args=(SigningKey.generate(), waiting), daemon=True)
            for waiting in self._queues.values()
        ]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *raised):
        for waiting in self._queues.values():
            waiting.put((-9, 0, None))
        for thread in self._threads:
            thread.join()

    def submit(self, job: Job, check=None) -> "Future[JobResult]":
        future: Future[JobResult] = Future()
        self._count += 1
        self.asked.append(job)
        self._queues[job.kind].put((job.priority, self._count, (job, check, future)))
        return future

    def distrust(self, node_id, reason, evidence):
        raise AssertionError(f"an honest node was caught: {reason}")

    def _work(self, key: SigningKey, waiting: queue.PriorityQueue) -> None:
        work = works(key)
        while (asked := waiting.get()[2]) is not None:
            job, check, future = asked
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = self._done(job, work[job.kind], key.node_id)
                if check is not None:
                    check(result)
            except Exception as error:
                future.set_exception(error)
            else:
                future.set_result(result)

    def _done(self, job: Job, work, node_id: str) -> JobResult:
        files = []
        with tempfile.TemporaryDirectory() as out:
            output = work(json.loads(json.dumps(job.payload)), None, Path(out))
            for made in Path(out).iterdir():
                data, path = made.read_bytes(), f"uploads/{job.job_id}-{made.name}"
                self._store.write_bytes(path, data)
                files.append(Upload(path, hashlib.sha256(data).hexdigest(), len(data)))
        return JobResult(job.job_id, node_id, output, 0.1, tuple(files))


class Ahead:
    """A trainer that starts when `lead` selections wait for it, and then trains them all at once.

    As one that is fast while the driver is held up. It is the trainer's own code.
    """

    lead = 1

    def __init__(self, run_dir: Path, until: int, resources):
        self._run_dir, self._until = run_dir, until

    def __enter__(self):
        return self

    def __exit__(self, *raised):
        pass

    def done(self, version: int) -> bool:
        last = min(version + self.lead - 1, self._until)
        ready = selection_path(self._run_dir, last).is_file()
        if ready and not weights_path(self._run_dir, version).is_dir():
            assert main([str(self._run_dir), "--until", str(last)]) == 0
        return ready and weights_path(self._run_dir, version).is_dir()
