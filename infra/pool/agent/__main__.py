"""An agent as a child of the run that it serves: `python -m infra.pool.agent`.

The first line on stdin is its AgentConfig as JSON, because an invite is a secret and arguments are
not. It leaves with its parent, whose end shows on stdin.
"""

import os
import signal
import sys
import threading

from infra.pool.agent.config import AgentConfig
from infra.pool.agent.run import run_agent


def main() -> int:
    """Run until told to end."""
    config = AgentConfig.model_validate_json(sys.stdin.buffer.readline())

    def wait() -> None:
        # Not through sys.stdin: its lock, held at the end of the interpreter, aborts it.
        while os.read(0, 1 << 16):
            pass
        # Nobody is left who could want the shard in hand.
        os.kill(os.getpid(), signal.SIGHUP)

    threading.Thread(target=wait, daemon=True).start()
    return run_agent(config)


if __name__ == "__main__":
    sys.exit(main())
