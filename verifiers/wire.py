"""Frames between a pool and its worker processes: 4 bytes of length, then JSON."""

import json
import socket
import struct
from typing import Any

HEADER = struct.Struct(">I")


def encode(message: Any) -> bytes:
    """One frame. Lone surrogates travel as escapes; raises ValueError/TypeError otherwise."""
    body = json.dumps(message).encode("ascii")
    return HEADER.pack(len(body)) + body


class FrameReader:
    """Cuts a byte stream into messages."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Any]:
        """Add bytes; return the messages that are complete."""
        self._buffer += data
        messages = []
        while len(self._buffer) >= HEADER.size:
            (length,) = HEADER.unpack_from(self._buffer)
            end = HEADER.size + length
            if len(self._buffer) < end:
                break
            messages.append(json.loads(bytes(self._buffer[HEADER.size : end])))
            del self._buffer[:end]
        return messages


def receive(sock: socket.socket, reader: FrameReader) -> list[Any]:
    """Block for at least one message; an empty list means that the other side is gone."""
    while True:
        data = sock.recv(1 << 20)
        if not data:
            return []
        if messages := reader.feed(data):
            return messages
