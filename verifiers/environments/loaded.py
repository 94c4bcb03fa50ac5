"""The loaded environments of this process: loading takes seconds, so the last ones are kept."""

import json
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from verifiers.environments.install import python_of
from verifiers.environments.process import EnvironmentProcess

KEPT = 2

_Key = tuple[str, str, str]
_loaded: OrderedDict[_Key, EnvironmentProcess] = OrderedDict()
_owner = os.getpid()
_lock = threading.Lock()


@contextmanager
def loaded(digest: str, environment: str, args: Mapping[str, Any]) -> Iterator[EnvironmentProcess]:
    """An environment for some episodes; one that broke is not kept."""
    key = (digest, environment, json.dumps(args, sort_keys=True))
    process = _take(key)
    if process is None:
        process = EnvironmentProcess(python_of(digest), environment, args)
    try:
        yield process
    finally:
        _put(key, process)


def close_all() -> None:
    """End the environments that are kept."""
    with _lock:
        kept = list(_loaded.values()) if _owner == os.getpid() else []
        _loaded.clear()
    for process in kept:
        process.close()


def _take(key: _Key) -> EnvironmentProcess | None:
    global _owner
    with _lock:
        if _owner != os.getpid():  # they belong to the process that started them
            _loaded.clear()
            _owner = os.getpid()
        process = _loaded.pop(key, None)
    if process is not None and not process.alive:
        process.close()
        return None
    return process


def _put(key: _Key, process: EnvironmentProcess) -> None:
    surplus = [process]
    with _lock:
        if process.alive and key not in _loaded:
            _loaded[key] = process
            surplus = [_loaded.popitem(last=False)[1]] if len(_loaded) > KEPT else []
    for other in surplus:
        other.close()
