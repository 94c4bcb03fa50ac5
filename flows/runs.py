"""What a run is bound to: its id, its config as it was resolved, the code that made it.

Invariant: `run.toml` is written once, before anything else of the run, and only a run with the same
config goes on.
"""

import hashlib
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import tomli_w

from flows.config import RunConfig
from flows.errors import DamagedRun, NoRun, OtherConfig
from flows.profiles import parse_config
from infra.storage import RunLayout, Store
from infra.storage.errors import AlreadyExists, NotFound

CODE = ("flows", "tasks", "infra", "toploc", "verifiers", "data_contracts")


@dataclass(frozen=True)
class Run:
    """A run that may go on."""

    config: RunConfig
    store: Store
    layout: RunLayout

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.layout.run_id


def new_run_id() -> str:
    """A run id from the time, for runs that were given none."""
    return datetime.now(UTC).strftime("run-%Y%m%d-%H%M%S")


def open_run(config: RunConfig, run_id: str) -> Run:
    """Start a run, or go on with it if it has the same config."""
    store, layout = Store(config.storage.root), RunLayout(run_id or new_run_id())
    bind(store, layout.run_id, layout.run_toml, config.dump())
    return Run(config, store, layout)


def bind(
    store: Store,
    run_id: str,
    path: str,
    config: dict[str, Any],
    decisive: Callable[[dict[str, Any]], dict[str, Any]] = lambda kept: kept,
) -> None:
    """Write the record of a run, or check that the one that is there has the same config.

    Where a run lies (section `storage`) is not part of what it is; of the rest, `decisive` says
    what must be the same.
    """
    kept = {key: value for key, value in config.items() if key != "storage"}
    record = {"run_id": run_id, "code_version": code_version(), "config": kept}
    try:
        store.write_bytes(path, tomli_w.dumps(record).encode())
    except AlreadyExists:
        known = read_record(store, run_id, path)["config"]
        differences = diff(decisive(known), decisive(kept))
        if differences:
            raise OtherConfig(run_id, differences) from None


def find_run(root: str, run_id: str) -> Run:
    """A run that exists, with the config that it was started with."""
    store, layout = Store(root), RunLayout(run_id)
    try:
        values = read_record(store, layout.run_id, layout.run_toml)["config"]
    except NotFound:
        raise NoRun(run_id, store.uri()) from None
    config = parse_config(values | {"storage": {"root": root}}, layout.run_toml)
    return Run(config, store, layout)


def diff(old: Any, new: Any, where: str = "") -> list[str]:
    """`key: old -> new` for each value that differs."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = [*old, *(key for key in new if key not in old)]
        return [
            line
            for key in keys
            for line in diff(old.get(key), new.get(key), f"{where}.{key}" if where else key)
        ]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [
            line
            for number, (a, b) in enumerate(zip(old, new, strict=True))
            for line in diff(a, b, f"{where}.{number}")
        ]
    return [] if old == new else [f"{where}: {old!r} -> {new!r}"]


@cache
def code_version() -> str:
    """Package version and a hash over our sources, which tells uncommitted changes apart too."""
    root = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256()
    for package in CODE:
        for path in sorted((root / package).rglob("*.py")):
            digest.update(path.relative_to(root).as_posix().encode() + b"\0")
            digest.update(path.read_bytes() + b"\0")
    return f"{version('tracemill')}+{digest.hexdigest()[:12]}"


def read_record(store: Store, run_id: str, path: str) -> dict[str, Any]:
    """The record of a run: its config, and the code that started it."""
    try:
        record = tomllib.loads(store.read_bytes(path).decode())
    except ValueError as error:
        raise DamagedRun(run_id, store.uri(path), str(error)) from error
    if not isinstance(record.get("config"), dict):
        raise DamagedRun(run_id, store.uri(path), "it has no [config]")
    return record
