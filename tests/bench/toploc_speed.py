"""How fast proofs are built and verified, against PyPI toploc 0.1.6 and against the floor.

The work: 1000 x 5120 bfloat16 activations, 32 proofs of 128 values. Both sides run in turn, each in
its own process with one thread on the same core; medians of processor time, which on an idle
machine is the time that passes, and in which other processes' turns do not count. The floor is one
pass over the activations: their bytes over the memory bandwidth measured in the same rounds.

    python -m tests.bench.toploc_speed [--rounds 40]

Prints one JSON line per figure: `proof_build` and `proof_verify` with ratio = peer / ours, and
`proof_build_floor` and `proof_verify_floor` with the floor in the peer's place.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable

import torch

from tests.bench.toploc_peer import ToplocPeer
from toploc import ProofPoly, build_proofs_bytes, verify_proofs_bytes

ROWS, HIDDEN, BATCHING, TOPK = 1000, 5120, 32, 128
_BUFFER = 1 << 28
"""Bytes read to measure the bandwidth: far more than any cache holds."""


def seconds_of(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    arguments = parser.parse_args()
    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])  # the peer takes a thread per core
    torch.set_num_threads(1)
    peer = ToplocPeer()
    generator = torch.Generator().manual_seed(0)
    activations = torch.randn(ROWS, HIDDEN, generator=generator).bfloat16()
    buffer = torch.zeros(_BUFFER // 8, dtype=torch.int64)
    proofs = build_proofs_bytes(activations, BATCHING, TOPK, skip_prefill=True)
    theirs, _ = peer.build(activations, BATCHING, TOPK)
    figures, _ = peer.verify(None, theirs, BATCHING, TOPK)
    ours = verify_proofs_bytes(activations, theirs, BATCHING, TOPK, skip_prefill=True)
    # Ties at the 128th place aside, both did the same work and found nothing wrong.
    assert len(proofs) == len(theirs) == len(figures) == 32
    assert max(f[0] for f in figures) == 0 and max(r.exp_mismatches for r in ours) < 32
    assert {ProofPoly.from_bytes(p).modulus for p in proofs} >= {65497}
    times: dict[str, list[float]] = {}
    for _ in range(arguments.rounds):
        for name, seconds in (
            ("bandwidth", lambda: seconds_of(buffer.sum)),
            ("build", lambda: seconds_of(
                lambda: build_proofs_bytes(activations, BATCHING, TOPK, True))),
            ("peer_build", lambda: peer.build(None, BATCHING, TOPK)[1]),
            ("verify", lambda: seconds_of(
                lambda: verify_proofs_bytes(activations, proofs, BATCHING, TOPK, True))),
            ("peer_verify", lambda: peer.verify(None, theirs, BATCHING, TOPK)[1]),
        ):  # fmt: skip
            times.setdefault(name, []).append(seconds())
    peer.close()
    median = {name: statistics.median(values) for name, values in times.items()}
    bandwidth = _BUFFER / median["bandwidth"]
    floor = activations.nbytes / bandwidth
    print(f"memory {bandwidth / 1e9:.1f} GB/s, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    for work in ("build", "verify"):
        mine = median[work]
        report(f"proof_{work}", mine, median[f"peer_{work}"], "PyPI toploc 0.1.6")
        report(f"proof_{work}_floor", mine, floor, "one pass over the activations")


def report(metric: str, ours: float, peer: float, peer_name: str) -> None:
    line = {
        "bench": "toploc_speed",
        "metric": metric,
        "ours": round(ours * 1e3, 2),
        "peer": round(peer * 1e3, 2),
        "peer_name": peer_name,
        "ratio": round(peer / ours, 2),
        "unit": "ms",
    }
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
