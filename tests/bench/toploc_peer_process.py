"""The PyPI package toploc, asked over pipes: this file runs in the peer's own environment.

A message is four bytes of length and an npz archive without pickles: arrays by name, and
`settings`, a JSON object. Activations travel as their 16-bit patterns and stay for the requests
that follow.
"""

import inspect
import io
import json
import struct
import sys
import time
from typing import IO, Any

import numpy as np


def write_message(stream: IO[bytes], settings: dict[str, Any], **arrays: np.ndarray) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, settings=np.array(json.dumps(settings)), **arrays)
    data = buffer.getvalue()
    stream.write(struct.pack(">I", len(data)) + data)
    stream.flush()


def read_message(stream: IO[bytes]) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
    """Settings and arrays; None at the end of the stream."""
    head = stream.read(4)
    if len(head) < 4:
        return None
    with np.load(io.BytesIO(stream.read(struct.unpack(">I", head)[0]))) as archive:
        arrays = {name: archive[name] for name in archive.files}
    return json.loads(str(arrays.pop("settings"))), arrays


def serve() -> None:
    import torch

    import toploc

    assert toploc.__file__ and toploc.__file__.startswith(sys.prefix), toploc.__file__
    torch.set_num_threads(1)
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    activations = torch.empty(0)
    while (message := read_message(source)) is not None:
        settings, arrays = message
        if "activations" in arrays:
            bits = torch.from_numpy(arrays["activations"].view(np.int16))
            activations = bits.view(getattr(torch, settings["dtype"]))
        if settings["ask"] == "names":
            names = {
                name: list(inspect.signature(getattr(toploc, name)).parameters)
                for name in dir(toploc)
                if inspect.isfunction(getattr(toploc, name))
            }
            write_message(sink, {"version": toploc.__version__, "functions": names})
        elif settings["ask"] == "build":
            rest = settings["batching"], settings["topk"], settings["skip_prefill"]
            given = activations if settings["skip_prefill"] else list(activations)
            start = time.process_time()
            proofs = toploc.build_proofs_bytes(given, *rest)
            seconds = time.process_time() - start
            rows = np.frombuffer(b"".join(proofs), np.uint8).reshape(len(proofs), -1)
            write_message(sink, {"seconds": seconds}, proofs=rows)
        else:
            proofs = [row.tobytes() for row in arrays["proofs"]]
            rest = settings["batching"], settings["topk"], True
            start = time.process_time()
            results = toploc.verify_proofs_bytes(activations, proofs, *rest)
            seconds = time.process_time() - start
            figures = [(r.exp_mismatches, r.mant_err_mean, r.mant_err_median) for r in results]
            write_message(sink, {"seconds": seconds}, figures=np.array(figures, np.float64))


if __name__ == "__main__":
    serve()
