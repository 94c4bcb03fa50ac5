"""Answers that were seen before.

Two honest samples may be the same: short answers often are. Of an answer that the policy itself
calls improbable, two independent samples are not the same; one is a copy. Which of them, only a
prefill can say (seeds differ, and tokens follow seeds), so a repeated answer is no verdict but a
reason to look.
"""

import hashlib
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

IMPROBABLE = 20.0
"""Nats: an answer that is sampled once in 5e8 times, by its own log-probabilities."""
KEPT_STEPS = 32
"""Rollout steps whose answers are remembered."""


@dataclass(frozen=True)
class Place:
    """Where an answer was seen."""

    sample_id: str
    file: str
    node_id: str


class Seen:
    """Improbable answers and who gave them first."""

    def __init__(self) -> None:
        self._steps: defaultdict[int, dict[bytes, Place]] = defaultdict(dict)

    def repeated(self, rows: Sequence[Mapping[str, Any]], file: str) -> dict[str, Place]:
        """Sample id -> where its answer was seen before, also among the rows themselves."""
        own: dict[bytes, Place] = {}
        found = {}
        for row in rows:
            key = _key(row)
            if key is None:
                continue
            known = (places[key] for places in [*self._steps.values(), own] if key in places)
            before = next(known, None)
            if before is not None and before.sample_id != row["sample_id"]:
                found[row["sample_id"]] = before
            own.setdefault(key, Place(row["sample_id"], file, row["node_id"]))
        return found

    def add(self, rows: Sequence[Mapping[str, Any]], file: str) -> None:
        """Remember the answers of a file that was accepted."""
        for row in rows:
            key = _key(row)
            if key is not None:
                place = Place(row["sample_id"], file, row["node_id"])
                self._steps[row["rollout_step"]].setdefault(key, place)
        newest = max(self._steps, default=0)
        for step in [step for step in self._steps if step <= newest - KEPT_STEPS]:
            del self._steps[step]

    def forget(self, file: str) -> None:
        """The file was taken back."""
        for step, places in self._steps.items():
            self._steps[step] = {k: place for k, place in places.items() if place.file != file}


def _key(row: Mapping[str, Any]) -> bytes | None:
    if not -math.fsum(row["output_logprobs"]) > IMPROBABLE:
        return None
    digest = hashlib.sha256(np.asarray(row["input_tokens"], np.int32).tobytes() + b"|")
    digest.update(np.asarray(row["output_tokens"], np.int32).tobytes())
    return digest.digest()[:16]
