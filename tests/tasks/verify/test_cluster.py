"""What a cluster leaves behind in this process."""

import os

from tasks.verify.cluster import dask_client
from tasks.verify.config import VerifyConfig


def test_variables_that_workers_are_started_with_do_not_stay(monkeypatch):
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    before = dict(os.environ)
    with dask_client(VerifyConfig(workers=1)) as client:
        assert client.submit(os.environ.get, "MALLOC_TRIM_THRESHOLD_").result() == "65536"
    assert dict(os.environ) == before
