"""Start one agent: its key, its list of images, its client, and its loop."""

import logging
import os
import tempfile
from importlib.metadata import version
from pathlib import Path

from infra.pool.agent.agent import Agent
from infra.pool.agent.config import AgentConfig
from infra.pool.agent.errors import AgentError, NotAdmitted
from infra.pool.agent.identity import load_key, p2p_seed
from infra.pool.agent.launch import Launcher
from infra.pool.agent.links import Links
from infra.pool.agent.p2p import p2p_id
from infra.pool.client import PoolClient
from infra.pool.errors import PoolError
from infra.reaper import AGENT, watch_this_process

EXCLUDED = 3
"""Exit code of an agent that its pool does not take, or not any more."""
FAULT = 1


def run_agent(config: AgentConfig) -> int:
    """Run until the node leaves; the exit code: 0, EXCLUDED, or FAULT."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    mark = watch_this_process(AGENT)
    key, seed = load_key(config.key_file), p2p_seed(config.key_file)
    config = config.model_copy(update={"p2p_id": config.p2p_id or p2p_id(seed)})
    client = PoolClient(config.url, key=key, ca=config.ca)
    with tempfile.TemporaryDirectory(prefix="tracemill-node-") as temporary:
        work_dir = config.work_dir or Path(temporary)
        work_dir.mkdir(parents=True, exist_ok=True)
        links = Links(config.key_file, work_dir / "links")
        launcher = Launcher(
            config.images, key.node_id, config.key_file, work_dir, mark,
            docker=config.docker, p2p_seed=seed, links=links,
        )  # fmt: skip
        agent = Agent(
            client, key.node_id, config, launcher, links, work_dir, mark, version("tracemill")
        )
        try:
            agent.run()
        except (AgentError, PoolError) as error:
            logging.getLogger("tracemill.agent").error("%s", error)
            return EXCLUDED if isinstance(error, NotAdmitted) else FAULT
        finally:
            client.close()
    return os.EX_OK
