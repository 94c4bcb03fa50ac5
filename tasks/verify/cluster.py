"""The Dask client of a run: a local cluster by default, any scheduler by address."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import dask
from distributed import Client, LocalCluster

from tasks.provision.config import ProvisionConfig
from tasks.verify.config import VerifyConfig

# Verifiers start killable children, which a daemonic worker may not.
SETTINGS = {
    "distributed.worker.daemon": False,
    "distributed.worker.memory.terminate": 0.95,
    "distributed.scheduler.allowed-failures": 2,
    "distributed.admin.tick.limit": "30s",
}


@contextmanager
def dask_client(config: VerifyConfig) -> Iterator[Client]:
    """A client; what was started here is stopped in the end."""
    with _own_environment(), dask.config.set(SETTINGS):
        if config.scheduler:
            with Client(config.scheduler, set_as_default=False) as client:
                yield client
            return
        workers = config.workers or ProvisionConfig().node_count()
        with (
            LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                processes=True,
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",
                silence_logs=40,
            ) as cluster,
            Client(cluster, set_as_default=False) as client,
        ):
            yield client


@contextmanager
def _own_environment() -> Iterator[None]:
    """Take back what Dask's nanny sets in this process, which its later children would inherit."""
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)
