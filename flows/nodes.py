"""The pool of a run: local nodes behind a private service, or a service that is there.

On a service that is there, nodes of our own come as runs of the flow `serve-node` in Prefect work
pools: they are started here, waited for, kept up while there is work, and cancelled in the end.
Where this process is killed, they leave when they have been without work for a while, and the
service drops what the run had asked of it. Strangers that joined by themselves may generate, if the
config says so.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from flows.node_runs import NodeRuns
from infra.pool import RemotePool
from infra.pool.client import PoolClient
from infra.pool.service.run import read_admin_key
from infra.storage import Store
from tasks.provision.config import ProvisionConfig
from tasks.provision.errors import NotReady
from tasks.provision.local import PATIENCE, local_pool
from tasks.provision.node import IMAGE

POLL_SECONDS = 2.0


@contextmanager
def pool_of(config: ProvisionConfig, store: Store, directory: str) -> Iterator[RemotePool]:
    """The pool that a config asks for; uploads lie in `directory` where the service is private."""
    if not config.service:
        with local_pool(config, store, directory) as pool:
            yield pool
        return
    with ExitStack() as stack:
        client = PoolClient(
            config.service,
            admin_key=read_admin_key(None, store),
            ca=Path(config.ca) if config.ca else None,
            patience=PATIENCE,
        )
        stack.callback(client.close)
        pool = stack.enter_context(
            RemotePool(
                client,
                name=directory.replace("/", "-"),
                image=IMAGE,
                topologies=config.topologies,
                strangers=config.strangers,
            )
        )
        if config.work_pools:
            known = {node.node_id for node in pool.nodes()}
            # Until all are up, each is wanted; then those that there is work for.
            up = threading.Event()
            stack.enter_context(
                NodeRuns(config, client, lambda: not up.is_set() or pool.waiting() > 0)
            )
            _wait(config, pool, known)
            up.set()
        yield pool


def _wait(config: ProvisionConfig, pool: RemotePool, known: set[str]) -> None:
    wanted = sum(asked.nodes for asked in config.work_pools)
    deadline = time.monotonic() + config.ready_seconds
    while True:
        # Strangers may join meanwhile.
        ready = [
            node for node in pool.nodes()
            if node.trusted and node.node_id not in known and node.state == "Healthy"
        ]  # fmt: skip
        if len(ready) >= wanted:
            return
        if time.monotonic() > deadline:
            raise NotReady(
                f"{wanted} nodes of work pools ({len(ready)} did)", config.ready_seconds,
                "see the flow runs of serve-node, and whether a worker runs for each work pool",
            )  # fmt: skip
        time.sleep(POLL_SECONDS)
