"""The PyPI package toploc 0.1.6 as another process, which it may end by aborting."""

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.bench.peers import peer_python
from tests.bench.toploc_peer_process import read_message, write_message

_PROGRAM = Path(__file__).with_name("toploc_peer_process.py")


class PeerDied(RuntimeError):
    """The peer's process ended instead of answering; another one is started when next asked."""


class ToplocPeer:
    """Builds and verifies proofs with the PyPI package. Raises PeerUnavailable when made."""

    def __init__(self) -> None:
        self._python = peer_python("toploc")
        self._process: subprocess.Popen[bytes] | None = None

    def names(self) -> dict[str, list[str]]:
        """The package's functions and their parameters."""
        found: dict[str, list[str]] = self._ask({"ask": "names"})[0]["functions"]
        return found

    def build(
        self,
        activations: Tensor | None,
        batching: int,
        topk: int,
        skip_prefill: bool = True,
    ) -> tuple[list[bytes], float]:
        """Proofs of activations [rows, hidden], or of those sent last, and processor seconds."""
        settings = {"ask": "build", "batching": batching, "topk": topk} | {
            "skip_prefill": skip_prefill
        }
        reply, arrays = self._ask(settings, activations)
        return [row.tobytes() for row in arrays["proofs"]], reply["seconds"]

    def verify(
        self, activations: Tensor | None, proofs: list[bytes], batching: int, topk: int
    ) -> tuple[list[list[float]], float]:
        """Figures of each chunk (mismatches, mean, median), and processor seconds."""
        rows = np.frombuffer(b"".join(proofs), np.uint8).reshape(len(proofs), -1)
        settings = {"ask": "verify", "batching": batching, "topk": topk}
        reply, arrays = self._ask(settings, activations, proofs=rows)
        return arrays["figures"].tolist(), reply["seconds"]

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.communicate()
            self._process = None

    def _ask(
        self, settings: dict[str, Any], activations: Tensor | None = None, **arrays: np.ndarray
    ) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        if self._process is None:
            self._process = subprocess.Popen(
                # -I: neither this folder nor PYTHONPATH may put our package in its place.
                [str(self._python), "-I", str(_PROGRAM)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )
        if activations is not None:
            arrays["activations"] = activations.view(torch.int16).numpy().view(np.uint16)
            settings = settings | {"dtype": str(activations.dtype).removeprefix("torch.")}
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        try:
            write_message(process.stdin, settings, **arrays)
            reply = read_message(process.stdout)
        except BrokenPipeError:
            reply = None
        if reply is None:
            self._process = None
            raise PeerDied(f"the peer ended with {process.wait()} at {settings}")
        return reply
