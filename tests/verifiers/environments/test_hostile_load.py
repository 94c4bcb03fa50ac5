"""A hostile wheel while it is loaded: nothing gained, nothing left, the verifier goes on.

The wheel misbehaves before it needs the library, so these tests install that one wheel alone.
"""

import os

import psutil
import pytest

from verifiers.environments import EnvironmentProcess, install, process, read_lock
from verifiers.errors import EnvironmentBroken, EnvironmentMissing, InstallFailed
from verifiers.registry import judge_row
from verifiers.sandbox import Limits

SMALL = Limits(cpu_seconds=5, memory_bytes=512 << 20, threads=30)


@pytest.fixture(scope="module")
def lock(lock_text):
    return read_lock(lock_text("tm_hostile"))


@pytest.fixture(scope="module")
def python(lock, wheels, cache, sandbox_here):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRACEMILL_CACHE", str(cache))
        made = install(lock, [wheels])
        before = made.stat().st_ino
        assert install(lock).stat().st_ino == before  # made once
        yield made


def load(python, way, monkeypatch, seconds=240.0, **more):
    monkeypatch.setattr(process, "LIMITS", SMALL)
    monkeypatch.setattr(process, "LOAD_SECONDS", seconds)
    before = running()
    with pytest.raises(EnvironmentBroken) as caught:
        EnvironmentProcess(python, "tm-hostile", {"at_load": way, **more})
    assert running() <= before
    return str(caught.value)


def running():
    """Ids of the processes below this one."""
    below = psutil.Process().children(recursive=True)
    return {one.pid for one in below if one.status() != psutil.STATUS_ZOMBIE}


@pytest.mark.parametrize("way", ["network", "write", "prints", "signals"])
def test_it_gains_nothing(python, way, monkeypatch):
    assert f"{way} gained ''" in load(python, way, monkeypatch)


def test_it_reads_nothing_of_the_machine(python, secrets, monkeypatch):
    assert "read_files gained ''" in load(python, "read_files", monkeypatch, secrets=secrets)


@pytest.mark.parametrize(
    ("way", "reason"),
    [
        ("memory", "MemoryError"),
        ("threads", "can't start new thread"),
        ("crash", "process ended"),
        ("leave", "process ended"),
        ("floods", "bytes; 67108864 may be"),
        ("forged_size", "bytes; 67108864 may be"),
    ],
)
def test_it_breaks_only_itself(python, way, reason, monkeypatch):
    assert reason in load(python, way, monkeypatch)


@pytest.mark.parametrize("way", ["sleep", "fork", "fork_bomb", "forever"])
def test_what_never_ends_is_ended(python, way, monkeypatch):
    what = load(python, way, monkeypatch, seconds=2.0)
    assert "took too long" in what or "gained 'forked'" in what


def test_the_memory_of_all_its_processes_is_bounded(python, monkeypatch):
    monkeypatch.setattr(process, "TOTAL_BYTES", 300 << 20)
    assert "GiB of memory" in load(python, "fork_memory", monkeypatch)


def test_a_wheel_without_the_library_or_the_function(python, monkeypatch):
    assert "No module named" in load(python, "", monkeypatch)
    with pytest.raises(EnvironmentBroken, match="load_environment"):
        EnvironmentProcess(python, "json")
    with pytest.raises(EnvironmentBroken, match="No module named"):
        EnvironmentProcess(python, "owner/not-there@1.0")


def test_a_row_of_a_broken_environment_is_no_score(python, lock, monkeypatch):
    info = {"environment": "tm-hostile", "lock": lock.digest, "row": {"prompt": []}}
    got = judge_row("environment", "1", {**info, "args": {"at_load": "leave"}})
    assert (got.score, got.status) == (None, "verifier_error"), got
    for key in ("environment", "lock", "row"):
        assert judge_row("environment", "1", {**info, key: None}).status == "unverifiable"
    for bad in ([1, 0], [0], "01", [0, float("inf")], [True]):
        assert judge_row("environment", "1", {**info, "reward_range": bad}).status == "unverifiable"
    missing = judge_row("environment", "1", {**info, "lock": "0" * 64})
    assert missing.status == "verifier_error"
    assert "verifiers.environments install" in missing.detail
    for digest in ("../../bin", "A" * 64, ""):
        with pytest.raises(EnvironmentMissing):
            from verifiers.environments import python_of

            python_of(digest)


def test_a_wheel_of_another_hash_is_not_installed(wheels, tmp_path, monkeypatch):
    monkeypatch.setenv("TRACEMILL_CACHE", str(tmp_path))
    other = read_lock(f"tm-hostile==0.1.0 --hash=sha256:{'0' * 64}")
    with pytest.raises(InstallFailed, match=r"HASH|hash"):
        install(other, [wheels])
    assert not [name for name in os.listdir(tmp_path / "environments") if name[0] != "."]
