"""A pool of this machine: the service and its agents as children of the run.

The same path as with machines elsewhere: the agents join with an invite, prove themselves, take
leases and upload through the service. Invariants: everything listens on loopback and ends with this
process, however it ends; what is killed is started again, a node with its own key, one that was
excluded with a new one; keys and the database lie in a directory that only this user can read.
"""

import json
import os
import secrets
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from infra.pool import RemotePool
from infra.pool.agent.run import EXCLUDED
from infra.pool.client import PoolClient
from infra.pool.errors import PoolError
from infra.pool.service.run import ADMIN_KEY_VARIABLE
from infra.pool.supervisor import Command, Supervisor
from infra.pool.wire import Answer, Invite, InviteRequest
from infra.storage import Store
from tasks.provision.config import ProvisionConfig
from tasks.provision.errors import NotReady
from tasks.provision.node import AGENT, IMAGE, WORKER, agent_config, agent_environment

START_SECONDS = 120.0
POLL_SECONDS = 0.05
PATIENCE = 120.0
"""Seconds for which the run waits for a service that is started again."""
OWN_NODES = {
    # Shards of a second, each with some requests.
    "requests_per_minute": 1e6,
    "uploads_per_hour": 1_000_000,
    "core": {
        # All nodes share one machine: a second lease would only slow the first one down.
        "hedge_share": 1e9,
        # An agent that dies is started again and says so; silence is a machine that is busy.
        "unhealthy_after": 300.0,
        "lease_seconds": 300.0,
        "dead_after": 900.0,
        "stuck_seconds": 12 * 3600.0,
    },
}


@contextmanager
def local_pool(
    config: ProvisionConfig,
    store: Store | None = None,
    directory: str = "pool",
    command: Sequence[str] = WORKER,
) -> Iterator[RemotePool]:
    """A pool of `config.nodes` nodes, each with a worker that `command` starts.

    Uploads lie in `directory`/uploads of the store, records in its ledger; without a store both go
    with the pool.
    """
    with (
        tempfile.TemporaryDirectory(prefix="tracemill-pool-") as temporary,
        Supervisor() as supervisor,
    ):
        state, admin_key = Path(temporary), secrets.token_urlsafe(32)
        port, objects = _free_port(), store or Store(temporary)
        url = f"http://127.0.0.1:{port}"
        client = PoolClient(url, admin_key=admin_key, patience=PATIENCE)
        uploads = f"{directory}/uploads"
        service = supervisor.start(
            lambda _: _service(state, objects.root, uploads, port, admin_key)
        )
        _wait(lambda: client.call("GET", "/health", patience=0.0), service.last_words)
        ask = InviteRequest(uses=100_000, seconds=30 * 86400.0, label="local", trusted=True)
        invite = client.call("POST", "/invites", ask, Invite).invite
        agents = [
            supervisor.start(_Agent(f"agent-{number}", state, url, invite, config, command))
            for number in range(config.node_count())
        ]

        def trouble() -> str:
            if not all(agent.given_up for agent in agents):
                return ""
            return f"the agents keep ending. Last words: {agents[0].last_words()}"

        with RemotePool(
            client,
            name=directory.replace("/", "-"),
            image=IMAGE,
            trouble=trouble,
        ) as pool:
            yield pool
        client.close()


def _wait(ask: Callable[[], Answer], last_words: Callable[[], str]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            ask()
            return
        except PoolError as error:
            if time.monotonic() > deadline:
                raise NotReady("the pool's service", START_SECONDS, last_words()) from error
        time.sleep(POLL_SECONDS)


def _service(state: Path, root: str, uploads: str, port: int, admin_key: str) -> Command:
    config = {
        "root": root,
        "database": str(state / "pool.sqlite"),
        "port": port,
        "settings": OWN_NODES | {"uploads": uploads},
    }
    return Command(
        [sys.executable, "-m", "infra.pool.service", json.dumps(config)],
        dict(os.environ) | {ADMIN_KEY_VARIABLE: admin_key},
        state / "service.log",
    )


class _Agent:
    """How one agent is started, again with its key unless it was excluded."""

    def __init__(
        self,
        name: str,
        state: Path,
        url: str,
        invite: str,
        config: ProvisionConfig,
        command: Sequence[str],
    ):
        self._name, self._state, self._url, self._invite = name, state, url, invite
        self._config, self._command = config, command
        self._keys = 0

    def __call__(self, code: int | None) -> Command:
        if code == EXCLUDED:
            self._keys += 1
        key_file = self._state / f"{self._name}-{self._keys}.key"
        config = agent_config(self._url, self._invite, key_file, command=self._command)
        return Command(
            AGENT,
            agent_environment(self._config.threads),
            self._state / f"{self._name}.log",
            config.model_dump_json().encode() + b"\n",
        )


def _free_port() -> int:
    """A port that is free now and that nobody else is told of."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
