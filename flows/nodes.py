"""The pool of a run: local nodes behind a private service, or a service that is there.

On a service that is there, nodes of our own come as runs of the flow `serve-node` in Prefect work
pools: they are started here, waited for, and cancelled in the end. Where this process is killed,
they leave when they have been without work for a while, and the service drops what the run had
asked of it. Strangers that joined by themselves may generate, if the config says so.
"""

import secrets
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from uuid import UUID

from prefect.blocks.system import Secret
from prefect.client.orchestration import get_client
from prefect.deployments import run_deployment
from prefect.exceptions import PrefectException
from prefect.states import Cancelling

from infra.pool import RemotePool
from infra.pool.client import PoolClient
from infra.pool.service.run import read_admin_key
from infra.pool.wire import Invite, InviteRequest
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
            stack.enter_context(_node_runs(config, client, pool))
        yield pool


@contextmanager
def _node_runs(config: ProvisionConfig, client: PoolClient, pool: RemotePool) -> Iterator[None]:
    """Runs of `serve-node`, ready when this yields."""
    wanted = sum(asked.nodes for asked in config.work_pools)
    name = f"tracemill-invite-{secrets.token_hex(6)}"
    ask = InviteRequest(uses=wanted, seconds=config.ready_seconds, label=name, trusted=True)
    known = {node.node_id for node in pool.nodes()}
    Secret(value=client.call("POST", "/invites", ask, Invite).invite).save(name)  # type: ignore[call-arg]
    runs: list[UUID] = []
    try:
        for asked in config.work_pools:
            parameters = {
                "url": config.service,
                "invite_block": name,
                "ca": config.ca,
                "threads": config.threads,
            }
            for _ in range(asked.nodes):
                run = run_deployment(
                    asked.deployment, parameters=parameters, timeout=0, as_subflow=False
                )
                runs.append(run.id)  # type: ignore[union-attr]
        _wait(config, pool, known, wanted)
        yield
    finally:
        _cancel(runs)
        with suppress(PrefectException, ValueError):
            Secret.delete(name)  # type: ignore[unused-coroutine]


def _wait(config: ProvisionConfig, pool: RemotePool, known: set[str], wanted: int) -> None:
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


def _cancel(runs: list[UUID]) -> None:
    """Cancel all, whatever becomes of one."""
    with get_client(sync_client=True) as client:
        for run_id in runs:
            with suppress(PrefectException, OSError):
                client.set_flow_run_state(run_id, Cancelling())
