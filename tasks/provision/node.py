"""How a node of our own is started: what its agent is told, and its environment."""

import sys
from collections.abc import Sequence
from pathlib import Path

from infra.computing import computing_environment
from infra.pool.agent.config import AgentConfig, location_of
from infra.pool.agent.images import Images, LocalCommand

IMAGE = "tracemill/worker"
"""What tasks of a run name; nodes map it to their own command."""
WORKER = (sys.executable, "-m", "tasks.provision.worker")
AGENT = (sys.executable, "-m", "infra.pool.agent")


def agent_config(
    url: str,
    invite: str,
    key_file: Path,
    *,
    command: Sequence[str] = WORKER,
    ca: Path | None = None,
    idle_seconds: float = 0.0,
    address: str = "",
    location: str = "",
) -> AgentConfig:
    """A node that runs the project's worker, which signs with the node's key."""
    return AgentConfig(
        url=url,
        invite=invite,
        ca=ca,
        key_file=key_file,
        images=Images(images={IMAGE: LocalCommand(command=list(command), key=True)}),
        idle_seconds=idle_seconds,
        address=address,
        location=location_of(location),
    )


def agent_environment(threads: int) -> dict[str, str]:
    """This process's environment with the threads of the node's engine."""
    return computing_environment(threads) | {"TRACEMILL_ENGINE_THREADS": str(threads)}
