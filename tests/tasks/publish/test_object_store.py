"""Publishing to an S3 server on loopback."""

import hashlib

import pytest
import s3fs
from moto.server import ThreadedMotoServer

from tasks.publish import latest
from tasks.report import funnel, write_report


@pytest.fixture
def s3_root(monkeypatch):
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test-key-id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test-key")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    # clients are cached by their options, and the environment is none of them
    s3fs.S3FileSystem.clear_instance_cache()
    s3fs.S3FileSystem().mkdir("bucket")
    yield "s3://bucket/data"
    s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


def test_the_same_files_as_elsewhere(s3_root, new_run, rate_and_publish):
    published = []
    for run in (new_run(), new_run(root=s3_root)):
        run.collect(per_kind=2).stages("annotators", run.ANNOTATORS[:1])
        run.stages("teacher", (run.TEACHER,), samples=1)
        result = rate_and_publish(run)
        assert rate_and_publish(run) == result
        assert latest(run.store, "made")["version"] == result.version
        published.append(
            {
                path: hashlib.sha256(run.store.read_bytes(path)).hexdigest()
                for path in run.store.list("published")
            }
        )
        found = funnel(run.store, run.layout)
        assert found.complete and run.store.exists(write_report(run.store, run.layout, found))
    assert published[0] == published[1]
