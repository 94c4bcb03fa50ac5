"""Answers that were seen before.

Two honest samples may be the same: short answers often are. Of an answer that the policy itself
calls improbable, two independent samples are not the same; one is a copy. Which of them, only a
prefill can say (seeds differ, and tokens follow seeds), so a repeated answer is no verdict but a
reason to look.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

IMPROBABLE = 20.0
"""Nats: an answer that is sampled once in 5e8 times, by its own log-probabilities."""


@dataclass(frozen=True)
class Place:
    """Where an answer was seen."""

    sample_id: str
    file: str
    node_id: str


class Seen:
    """Improbable answers and who gave them first."""

    def __init__(self) -> None:
        self._places: dict[bytes, Place] = {}

    def repeated(self, rows: Sequence[Mapping[str, Any]], file: str) -> dict[str, Place]:
        """Sample id -> where its answer was seen before, also among the rows themselves."""
        own: dict[bytes, Place] = {}
        found = {}
        for row in rows:
            key = _key(row)
            if key is None:
                continue
            before = self._places.get(key) or own.get(key)
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
                self._places.setdefault(key, place)

    def forget(self, file: str) -> None:
        """The file was taken back."""
        kept = {key: place for key, place in self._places.items() if place.file != file}
        self._places = kept


def _key(row: Mapping[str, Any]) -> bytes | None:
    if not -math.fsum(row["output_logprobs"]) > IMPROBABLE:
        return None
    digest = hashlib.sha256(np.asarray(row["input_tokens"], np.int32).tobytes() + b"|")
    digest.update(np.asarray(row["output_tokens"], np.int32).tobytes())
    return digest.digest()[:16]
