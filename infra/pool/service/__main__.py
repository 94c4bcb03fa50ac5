"""The service as a child of the run that it serves: `python -m infra.pool.service CONFIG`.

CONFIG is JSON: root, database, port, settings. The admin key comes with the environment. It listens
on loopback and ends with its parent, whose end shows on stdin.
"""

import json
import os
import signal
import sys
import threading

from infra.pool.service.run import ADMIN_KEY_VARIABLE, serve
from infra.pool.service.settings import ServiceSettings


def end_with_parent() -> None:
    """Ask this process to end as soon as stdin closes."""

    def wait() -> None:
        # Not through sys.stdin: its lock, held at the end of the interpreter, aborts it.
        while os.read(0, 1 << 16):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


def main(text: str) -> None:
    """Serve until told to end."""
    config = json.loads(text)
    end_with_parent()
    serve(
        ServiceSettings.model_validate(config["settings"]),
        root=config["root"],
        database=config["database"],
        host="127.0.0.1",
        port=config["port"],
        admin_key=os.environ[ADMIN_KEY_VARIABLE],
    )


if __name__ == "__main__":
    main(sys.argv[1])
