"""Directories that are built once, whoever asks and whatever dies."""

import multiprocessing
import time
from pathlib import Path

import pytest

from infra.models.cache import build_once, cache_root


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRACEMILL_CACHE", str(tmp_path))
    return tmp_path / "models"


def build_slowly(directory: Path) -> None:
    (directory / "a").write_text("1")
    time.sleep(0.5)
    (directory / "b").write_text("2")
    with (directory.parent / "builds").open("a") as log:
        log.write("x")


def ask(_: int) -> list[str]:
    return sorted(path.name for path in build_once("m", build_slowly).iterdir())


def test_place(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_root() == root
    monkeypatch.delenv("TRACEMILL_CACHE")
    assert cache_root() == Path.home() / ".cache" / "tracemill" / "models"


def test_processes_that_ask_at_once_build_once(root: Path) -> None:
    with multiprocessing.get_context("fork").Pool(3) as pool:
        assert pool.map(ask, range(3)) == [["a", "b"]] * 3
    assert (root / "builds").read_text() == "x"


def test_failed_build_leaves_nothing(root: Path) -> None:
    def fail(directory: Path) -> None:
        (directory / "half").write_text("")
        raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk full"):
        build_once("m", fail)
    assert not (root / "m").exists() and not list(root.glob("*building*"))
    assert ask(0) == ["a", "b"]


def test_leftovers_of_a_killed_build_go(root: Path) -> None:
    left = root / ".m.building-dead"
    left.mkdir(parents=True)
    (left / "half").write_text("")
    other = root / ".n.building-alive"
    other.mkdir()
    assert ask(0) == ["a", "b"]
    assert not left.exists() and other.exists()
