"""What a node must have: the requirement language and topology names, parsed to types.

`gpu:count=8;gpu:model=h100;gpu:memory_mb_min=79000;gpu:count=4;gpu:model=h200;ram_mb=500000`: parts
are separated by `;`; a repeated `gpu:count` starts an alternative; alternatives are OR-ed, cpu, RAM
and storage AND. A topology name `2x640GB` stands for two nodes with 640,000 MB of GPU memory each.

Models match by whole words: "h100" is not "gh100", and "rtx4090" is "RTX 4090".
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from infra.pool.core.errors import BadRequirement, BadTopology

_NAME = re.compile(r"([1-9]\d{0,2})x([1-9]\d{0,6})GB")
_WORDS = re.compile(r"[a-z]+|\d+")
MAX_TEXT = 2000
MAX_GROUP = 64


@dataclass(frozen=True, slots=True)
class Specs:
    """What a node says it has; memory is per card."""

    gpu_count: int = 0
    gpu_model: str = ""
    gpu_memory_mb: int = 0
    cpu_cores: int = 0
    ram_mb: int = 0
    storage_gb: int = 0

    @property
    def gpu_total_mb(self) -> int:
        """Memory of all cards."""
        return self.gpu_count * self.gpu_memory_mb


@dataclass(frozen=True, slots=True)
class GpuNeed:
    """One alternative for the cards; None is any."""

    count: int | None = None
    models: tuple[str, ...] = ()
    memory_min: int | None = None
    memory_max: int | None = None
    total_min: int | None = None
    total_max: int | None = None

    def met_by(self, specs: Specs) -> bool:
        """Whether the cards of a node are enough."""
        return (
            (self.count is None or specs.gpu_count == self.count)
            and (not self.models or any(same_model(m, specs.gpu_model) for m in self.models))
            and _within(specs.gpu_memory_mb, self.memory_min, self.memory_max)
            and _within(specs.gpu_total_mb, self.total_min, self.total_max)
        )


@dataclass(frozen=True, slots=True)
class Requirement:
    """What each node of a group must have."""

    gpus: tuple[GpuNeed, ...] = ()
    cpu_cores: int = 0
    ram_mb: int = 0
    storage_gb: int = 0

    def met_by(self, specs: Specs) -> bool:
        """Whether a node has enough."""
        return (
            (not self.gpus or any(need.met_by(specs) for need in self.gpus))
            and specs.cpu_cores >= self.cpu_cores
            and specs.ram_mb >= self.ram_mb
            and specs.storage_gb >= self.storage_gb
        )


@dataclass(frozen=True, slots=True)
class Topology:
    """A shape of group: how many nodes, and what each must have."""

    name: str
    min_size: int
    max_size: int
    requirement: Requirement = field(default_factory=Requirement)


@lru_cache(4096)
def model_words(name: str) -> tuple[str, ...]:
    """Runs of letters and of digits: "NVIDIA-H100 80GB" gives nvidia, h, 100, 80, gb."""
    return tuple(_WORDS.findall(name.lower()))


@lru_cache(65536)
def same_model(wanted: str, have: str) -> bool:
    """Whether the words of the wanted name stand in the node's, side by side and in order."""
    words, all_words = model_words(wanted), model_words(have)
    starts = range(len(all_words) - len(words) + 1)
    return bool(words) and any(all_words[i : i + len(words)] == words for i in starts)


def parse_requirement(text: str) -> Requirement:
    """Parse the requirement language; BadRequirement names the part that is wrong."""
    if len(text) > MAX_TEXT:
        raise BadRequirement(f"requirement of {len(text)} characters; allowed are {MAX_TEXT}")
    gpus: list[GpuNeed] = []
    plain: dict[str, int] = {}
    for part in filter(None, (piece.strip() for piece in text.split(";"))):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise BadRequirement(f"requirement part {part!r} is not of the form key=value")
        if key.startswith("gpu:"):
            if key == "gpu:count" and gpus and gpus[-1].count is not None:
                gpus.append(GpuNeed())
            need = gpus.pop() if gpus else GpuNeed()
            gpus.append(_gpu_part(need, key, value))
        elif key in _PLAIN:
            plain[_PLAIN[key]] = _number(key, value)
        else:
            raise BadRequirement(
                f"requirement key {key!r} is unknown; there are {', '.join([*_GPU, *_PLAIN])}"
            )
    return Requirement(gpus=tuple(gpus), **plain)


def parse_topology(name: str, configured: Mapping[str, Topology]) -> Topology:
    """A named configuration, or what an `NxMGB` name says."""
    if name in configured:
        return configured[name]
    found = _NAME.fullmatch(name)
    if found is None:
        raise BadTopology(
            f"topology {name!r} is unknown: it is not of the form NxMGB (for example 2x640GB), and "
            f"configured are {', '.join(sorted(configured)) or 'none'}"
        )
    size, gigabytes = int(found[1]), int(found[2])
    if size > MAX_GROUP:
        raise BadTopology(f"topology {name!r} has {size} nodes; allowed are {MAX_GROUP}")
    need = GpuNeed(total_min=gigabytes * 1000)
    return Topology(name, size, size, Requirement(gpus=(need,)))


def named_topology(name: str, min_size: int, max_size: int, requirement: str) -> Topology:
    """A configured topology; BadTopology when the sizes make no group."""
    if not 1 <= min_size <= max_size <= MAX_GROUP:
        raise BadTopology(
            f"topology {name!r}: sizes {min_size} to {max_size}; allowed is 1 <= min <= max <= "
            f"{MAX_GROUP}"
        )
    return Topology(name, min_size, max_size, parse_requirement(requirement))


_GPU = {
    "gpu:count": "count",
    "gpu:model": "models",
    "gpu:memory_mb": "memory_min",
    "gpu:memory_mb_min": "memory_min",
    "gpu:memory_mb_max": "memory_max",
    "gpu:total_memory_min": "total_min",
    "gpu:total_memory_max": "total_max",
}
_PLAIN = {"cpu:cores": "cpu_cores", "ram_mb": "ram_mb", "storage_gb": "storage_gb"}


def _gpu_part(need: GpuNeed, key: str, value: str) -> GpuNeed:
    if key not in _GPU:
        raise BadRequirement(
            f"requirement key {key!r} is unknown; there are {', '.join([*_GPU, *_PLAIN])}"
        )
    name = _GPU[key]
    if key == "gpu:model":
        models = tuple(filter(None, (model.strip() for model in value.split(","))))
        if not models or not all(model_words(model) for model in models):
            raise BadRequirement(f"requirement gpu:model={value!r} names no model")
        return replace(need, models=models)
    if getattr(need, name) is not None:
        raise BadRequirement(
            f"requirement {key}={value!r}: the alternative has a limit of that kind already; "
            "start another with gpu:count"
        )
    limits: dict[str, Any] = {name: _number(key, value)}
    return replace(need, **limits)


def _number(key: str, value: str) -> int:
    if not (value.isascii() and value.isdecimal() and len(value) <= 12):
        raise BadRequirement(f"requirement {key}={value[:40]!r}: allowed is a whole number")
    return int(value)


def _within(value: int, low: int | None, high: int | None) -> bool:
    return (low is None or value >= low) and (high is None or value <= high)
