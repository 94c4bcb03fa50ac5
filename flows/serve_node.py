"""Flow `serve-node`: a trusted node of a pool, until it is cancelled or idle.

Deployed to one Prefect work pool per class of GPU (prefect.yaml). A run of the pipeline starts as
many as its config asks for and cancels them in the end; where that run was killed, the node leaves
by itself after `idle_seconds` without work. Needs the Secret block that holds the invite.
"""

import signal
import subprocess
import tempfile
from pathlib import Path

from prefect import flow
from prefect.blocks.system import Secret

from flows.errors import NodeEnded
from tasks.provision.node import AGENT, agent_config, agent_environment

STOP_SECONDS = 600.0
"""For the shard in hand; Prefect's worker may give less."""


@flow(name="serve-node", flow_run_name="node of {url}")
def serve_node(
    url: str,
    invite_block: str,
    ca: str = "",
    idle_seconds: float = 900.0,
    threads: int = 1,
    address: str = "",
    location: str = "",
) -> None:
    """Join a pool and work.

    Args:
        url: of the pool's service.
        invite_block: name of the Secret block with an invite for trusted nodes.
        ca: file with the PEM of the pool's own CA; empty where the service's certificate is public.
        idle_seconds: leave after so long without work.
        threads: of the engine process, on a CPU.
        address: HOST:PORT at which peers reach the node; `:PORT` on the host that the pool sees.
        location: LAT,LON of the node in degrees.
    """
    invite: str = Secret.load(invite_block).get()  # type: ignore[union-attr]
    with tempfile.TemporaryDirectory(prefix="tracemill-serve-") as directory:
        config = agent_config(
            url,
            invite,
            # Two runs on one machine are two nodes.
            Path(directory) / "node.key",
            ca=Path(ca) if ca else None,
            idle_seconds=idle_seconds,
            address=address,
            location=location,
        )
        process = subprocess.Popen(
            AGENT, stdin=subprocess.PIPE, env=agent_environment(threads), start_new_session=True
        )
        assert process.stdin is not None
        try:
            process.stdin.write(config.model_dump_json().encode() + b"\n")
            process.stdin.flush()
            code = process.wait()
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_SECONDS)
            finally:
                process.stdin.close()
                process.wait()
    if code:
        raise NodeEnded(url, code)


if __name__ == "__main__":
    import sys

    serve_node(sys.argv[1], sys.argv[2])
