"""Runs of the flow `serve-node` for one run of the pipeline: as many as it asks for while it asks.

Each has an invite of its own, in a Secret block that only lives as long. A run that failed is
started again, after a pause that grows while it keeps failing soon; one that left because it was
idle is started again when there is work. In the end all are cancelled and their blocks deleted;
what a process that was killed left behind the next one sweeps: by then the invites have expired.
"""

import contextvars
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Self
from uuid import UUID

from prefect.blocks.system import Secret
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import State
from prefect.deployments import run_deployment
from prefect.exceptions import PrefectException
from prefect.logging import get_logger
from prefect.states import Cancelling

from infra.pool.client import PoolClient
from infra.pool.errors import PoolError
from infra.pool.wire import Invite, InviteRequest
from tasks.provision.config import ProvisionConfig

log = get_logger("tracemill.nodes")

BLOCK = "tracemill-invite-"
SWEEP_AFTER = timedelta(days=1)
"""No invite lasts longer (`provision.ready_seconds`)."""
LOOK_SECONDS = 10.0
FIRST_PAUSE, LONGEST_PAUSE = 15.0, 600.0
LASTING = 300.0
"""Seconds after which a run counts as one that had started well."""


@dataclass
class _Place:
    """One of the runs that are wanted."""

    deployment: str
    run_id: UUID | None = None
    block: str = ""
    started: float = 0.0
    due: float = 0.0
    pause: float = field(default=FIRST_PAUSE)


class NodeRuns:
    """The runs of one config; use it with `with`."""

    def __init__(self, config: ProvisionConfig, client: PoolClient, busy: Callable[[], bool]):
        """`busy`: whether there is work for a node."""
        self._config, self._client, self._busy = config, client, busy
        self._places = [
            _Place(asked.deployment) for asked in config.work_pools for _ in range(asked.nodes)
        ]
        self._ended = threading.Event()
        # Settings and credentials of Prefect go with the context.
        run = contextvars.copy_context().run
        self._thread = threading.Thread(target=run, args=(self._watch,), daemon=True)

    def __enter__(self) -> Self:
        """Start all of them; they are not up yet."""
        _sweep()
        try:
            for place in self._places:
                self._start(place)
        except BaseException:
            self._cancel()
            raise
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Cancel all of them."""
        self._ended.set()
        self._thread.join()
        self._cancel()

    def _start(self, place: _Place) -> None:
        place.block = BLOCK + secrets.token_hex(6)
        ask = InviteRequest(
            uses=1, seconds=self._config.ready_seconds, label=place.block, trusted=True
        )
        invite = self._client.call("POST", "/invites", ask, Invite).invite
        Secret(value=invite).save(place.block)  # type: ignore[call-arg]
        parameters = {
            "url": self._config.service,
            "invite_block": place.block,
            "ca": self._config.ca,
            "threads": self._config.threads,
        }
        run = run_deployment(place.deployment, parameters=parameters, timeout=0, as_subflow=False)
        place.run_id, place.started = run.id, time.monotonic()  # type: ignore[union-attr]
        place.due = 0.0

    def _watch(self) -> None:
        while not self._ended.wait(LOOK_SECONDS):
            with get_client(sync_client=True) as client:
                for place in self._places:
                    try:
                        self._look(client, place)
                    except (PrefectException, PoolError, OSError) as error:
                        log.warning("node of %s: %s; looked at again", place.deployment, error)

    def _look(self, client: SyncPrefectClient, place: _Place) -> None:
        if place.run_id is not None:
            state = client.read_flow_run(place.run_id).state
            if state is None or not state.is_final():
                return
            self._ended_run(place, state)
        if time.monotonic() >= place.due and self._busy():
            self._start(place)

    def _ended_run(self, place: _Place, state: State) -> None:
        _delete(place.block)
        place.run_id = None
        if not state.is_completed():
            if time.monotonic() - place.started > LASTING:
                place.pause = FIRST_PAUSE
            log.warning(
                "a node of %s ended (%s: %s); the next one in %.0f s",
                place.deployment, state.name, state.message, place.pause,
            )  # fmt: skip
            place.due = time.monotonic() + place.pause
            place.pause = min(2 * place.pause, LONGEST_PAUSE)

    def _cancel(self) -> None:
        """All of them, whatever becomes of one."""
        with get_client(sync_client=True) as client:
            for place in self._places:
                if place.run_id is not None:
                    with suppress(PrefectException, OSError):
                        client.set_flow_run_state(place.run_id, Cancelling())
        for place in self._places:
            _delete(place.block)


def _delete(block: str) -> None:
    with suppress(PrefectException, ValueError):
        Secret.delete(block)  # type: ignore[unused-coroutine]


def _sweep() -> None:
    """Delete the blocks of processes that were killed."""
    with get_client(sync_client=True) as client:
        for block in client.read_block_documents_by_type("secret", include_secrets=False):
            old = block.created and datetime.now(UTC) - block.created > SWEEP_AFTER
            if old and (block.name or "").startswith(BLOCK):
                with suppress(PrefectException):
                    client.delete_block_document(block.id)
