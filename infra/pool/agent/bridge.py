"""The unix socket by which a container talks to its agent: figures, and files to upload.

As in the original: JSON objects one after the other, `{"task_id", "<label>": number, ...}` or
`{"task_id", "output/save_path", "output/sha256", ...}`. Invariants: a container can do nothing else
with the agent; a path that it names is one below its own `/data`, and no link; what is uploaded has
the SHA-256 that the container said.
"""

import codecs
import contextlib
import hashlib
import json
import logging
import math
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

from infra.pool.agent.uploads import read_below
from infra.pool.wire import Metric, MetricKey

log = logging.getLogger("tracemill.agent")

DATA = "/data"
MAX_OBJECT = 1 << 20
MAX_LABELS = 256
_PATH, _SHA256 = "output/save_path", "output/sha256"


class Bridge:
    """Listens on a socket until it is closed."""

    def __init__(
        self,
        path: Path,
        task_id: str,
        data: Path,
        upload: Callable[[bytes, str], None],
    ):
        """`data` is what the container sees as /data; `upload` takes (bytes, name)."""
        self.path = path
        self._task_id, self._data, self._upload = task_id, data, upload
        self._figures: dict[str, float] = {}
        self._lock = threading.Lock()
        path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.bind(str(path))
        # The user inside the container may be another one; the directory is this agent's alone.
        os.chmod(path, 0o666)
        self._socket.listen(8)
        threading.Thread(target=self._accept, daemon=True).start()

    def metrics(self) -> list[Metric]:
        """The newest value of each label."""
        with self._lock:
            return [
                Metric(key=MetricKey(task_id=self._task_id, label=label), value=value)
                for label, value in self._figures.items()
            ]

    def close(self) -> None:
        """Stop listening."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self.path.unlink(missing_ok=True)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        decoder, text = json.JSONDecoder(), ""
        utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        with connection, contextlib.suppress(OSError):
            while chunk := connection.recv(1 << 16):
                text = (text + utf8.decode(chunk)).lstrip()
                while text:
                    try:
                        said, end = decoder.raw_decode(text)
                    except (ValueError, RecursionError):
                        break
                    text = text[end:].lstrip()
                    self._take(said)
                if len(text) > MAX_OBJECT:
                    log.warning("task %s sent no JSON object for too long", self._task_id)
                    return

    def _take(self, said: Any) -> None:
        if not isinstance(said, dict):
            return
        if _PATH in said:
            try:
                self._file(str(said[_PATH]), str(said.get(_SHA256, "")))
            except (OSError, ValueError) as error:
                log.warning("task %s: %s", self._task_id, error)
            return
        with self._lock:
            for label, value in said.items():
                number = isinstance(value, int | float) and not isinstance(value, bool)
                if not number or not math.isfinite(value) or not 0 < len(label) <= 200:
                    continue
                if label in self._figures or len(self._figures) < MAX_LABELS:
                    self._figures[label] = float(value)

    def _file(self, where: str, sha256: str) -> None:
        inside = PurePosixPath(where)
        if inside.is_absolute():
            inside = inside.relative_to(DATA)
        data = read_below(self._data, str(inside))
        if hashlib.sha256(data).hexdigest() != sha256:
            raise ValueError(f"{where[:200]!r} does not have the SHA-256 that was said")
        self._upload(data, inside.name)
