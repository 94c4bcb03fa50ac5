"""Lock files hold pinned wheels with hashes and nothing else."""

import pytest

from verifiers.environments import make_lock, read_lock
from verifiers.errors import BadLock

A, B = f"a==1.0 --hash=sha256:{'a' * 64}", f"B_c==2 --hash=sha256:{'b' * 64}"


def test_the_digest_is_that_of_the_wheels():
    lock = read_lock(f"# comment\n{B}\n\n  {A.replace(' ', '   ')}\r\n")
    assert lock == read_lock(f"{A}\n{B.replace('B_c', 'b-c')}")
    assert len(lock.digest) == 64 and lock.digest != read_lock(A).digest
    assert read_lock(lock.text) == lock


@pytest.mark.parametrize(
    "line",
    [
        "a==1.0",
        "a>=1.0 --hash=sha256:" + "a" * 64,
        "a==1.0 --hash=md5:" + "a" * 32,
        "a==1.0 --hash=sha256:" + "A" * 64,
        f"{A} --hash=sha256:{'b' * 64}",
        f"{A} --no-binary :all:",
        f"{A} ; python_version > '3'",
        "--index-url https://example.org/simple",
        "-e .",
        "-r other.txt",
        "a @ https://example.org/a.whl --hash=sha256:" + "a" * 64,
        "./a-1.0-py3-none-any.whl --hash=sha256:" + "a" * 64,
        f"--extra-index-url={A}",
    ],
)
def test_anything_else_is_refused(line):
    with pytest.raises(BadLock, match="line 2"):
        read_lock(f"{B}\n{line}\n")


def test_a_wheel_named_twice_and_an_empty_lock_are_refused():
    with pytest.raises(BadLock, match="second time"):
        read_lock(f"{B}\nb.c==3 --hash=sha256:{'c' * 64}")
    with pytest.raises(BadLock, match="0 wheels"):
        read_lock("# nothing\n")


def test_a_requirement_is_no_option():
    with pytest.raises(BadLock, match="option"):
        make_lock(["--index-url=https://example.org"])


@pytest.mark.slow
@pytest.mark.network
def test_resolving_gives_what_is_needed_with_hashes():
    lock = make_lock(["httpcore==1.0.9"])
    names = {line.split("==")[0] for line in lock.lines}
    assert names == {"httpcore", "h11", "certifi"}
    assert read_lock(lock.text) == lock
