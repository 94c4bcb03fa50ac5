"""The worker of a node, as strangers and as our own nodes start it."""

import json
import os
import subprocess

import pytest

from infra.pool.agent.identity import NODE_KEY
from tasks.provision.node import WORKER


@pytest.mark.parametrize("trusted", [False, True])
def test_a_pool_of_others_cannot_have_it_open_a_storage_root(tmp_path, trusted):
    command = WORKER if trusted else [*WORKER, "--stranger"]
    jobs = [
        {"job_id": kind, "kind": kind, "out": str(tmp_path), "payload": {"root": str(tmp_path)}}
        for kind in ("validate", "check_rollouts", "load")
    ]
    done = subprocess.Popen(
        list(command),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=dict(os.environ) | {NODE_KEY: str(tmp_path / "key")},
    )
    try:
        assert set(json.loads(done.stdout.readline())) == {"node_id"}
        for job in jobs:
            done.stdin.write(json.dumps(job).encode() + b"\n")
            done.stdin.flush()
            answer = json.loads(done.stdout.readline())
            unknown = answer["error_kind"] == "KeyError" and answer["error"] == repr(job["kind"])
            assert unknown is not trusted, answer
    finally:
        done.kill()
        done.wait()
        done.stdin.close()
        done.stdout.close()
