"""An HTTP server of an origin's directory that can be slow, cut off, lie and forget."""

import re
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@dataclass
class Faults:
    """What goes wrong, and what was asked."""

    bytes_per_second: float = 0.0
    """0: as fast as it goes."""
    cut_after: int = 0
    """Close the connection after so many bytes of a shard; 0: never."""
    flip: bool = False
    """Change a byte of each shard."""
    ignore_ranges: bool = False
    extra: bytes = b""
    """Sent behind each shard."""
    versions: bytes = b""
    """Instead of the list of versions."""
    manifest: bytes = b""
    """Instead of any manifest."""
    ranges: list[tuple[str, int]] = field(default_factory=list)
    """(shard, first byte) of each request."""


@contextmanager
def faulty(root: Path, stream: str, faults: Faults):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args):
            pass

        def do_GET(self):
            path = self.path.removeprefix(f"/{stream}/")
            if path == "versions":
                numbers = sorted(int(p.name) for p in root.iterdir() if p.name.isdecimal())
                self.answer(200, faults.versions or f'{{"versions": {numbers}}}'.encode())
            elif not (root / path).is_file():
                self.answer(404, b"")
            elif path.endswith("manifest.json"):
                self.answer(200, faults.manifest or (root / path).read_bytes())
            else:
                self.shard(path)

        def answer(self, code, body):
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def shard(self, path):
            data = (root / path).read_bytes()
            if faults.flip:
                data = data[:-1] + bytes([data[-1] ^ 1])
            found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            first = int(found.group(1)) if found and not faults.ignore_ranges else 0
            faults.ranges.append((path, first))
            body = data[first:] + faults.extra
            self.send_response(200 if faults.ignore_ranges else 206)
            if not faults.ignore_ranges:
                self.send_header("Content-Range", f"bytes {first}-{len(data) - 1}/{len(data)}")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if faults.cut_after:
                body = body[: faults.cut_after]
                self.close_connection = True
            step = 4096 if faults.bytes_per_second else max(len(body), 1)
            try:
                for at in range(0, len(body), step):
                    self.wfile.write(body[at : at + step])
                    if faults.bytes_per_second:
                        time.sleep(step / faults.bytes_per_second)
            except OSError:
                self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
