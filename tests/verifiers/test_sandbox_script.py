"""A long-lived script of another environment: the same walls."""

import sys
import time
from pathlib import Path

import psutil
import pytest

from verifiers.errors import SandboxUnavailable
from verifiers.sandbox import Limits, start_script

pytestmark = pytest.mark.usefixtures("sandbox_here")

LIMITS = Limits(cpu_seconds=60, memory_bytes=2 << 30)
DRIVER = """
import sys
print("hello", *sys.argv[1:], flush=True)
for line in sys.stdin:
    try:
        print(repr(eval(line)), flush=True)
    except BaseException as error:
        print(type(error).__name__, flush=True)
"""


def test_it_answers_and_cannot_reach_anything(tmp_path) -> None:
    (tmp_path / "driver.py").write_text(DRIVER)
    (tmp_path / "shown.txt").write_text("shown")
    (tmp_path / "hidden.txt").write_text("hidden")
    tree = start_script(
        Path(sys.executable),
        tmp_path / "driver.py",
        "one",
        read_only=[tmp_path / "shown.txt"],
        limits=LIMITS,
    )
    try:

        def ask(text: str) -> str:
            tree.stdin.write(text.encode() + b"\n")
            tree.stdin.flush()
            return tree.stdout.readline().decode().strip()

        assert tree.stdout.readline() == b"hello one\n", tree.errors()
        assert ask("__import__('pydantic').__name__") == "'pydantic'"
        assert ask(f"open({str(tmp_path / 'shown.txt')!r}).read()") == "'shown'"
        assert ask(f"open({str(tmp_path / 'hidden.txt')!r}).read()") == "FileNotFoundError"
        assert ask(f"open({str(tmp_path / 'shown.txt')!r}, 'w')") == "OSError"
        assert ask("open('/tmp/x', 'w').write('x')") == "1"
        assert ask("__import__('os').fork()") == "PermissionError"
        assert ask("__import__('subprocess').run(['/bin/true'])") in (
            "PermissionError",
            "FileNotFoundError",
        )
        assert ask("__import__('socket').socket()") == "PermissionError"
        assert ask("bytearray(3 << 30)") == "MemoryError"
        assert ask("'KEY' in str(__import__('os').environ)") == "False"
    finally:
        tree.kill()
    deadline = time.monotonic() + 10
    while psutil.pid_exists(tree.process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not psutil.pid_exists(tree.process.pid)


def test_another_interpreter_is_refused(tmp_path) -> None:
    with pytest.raises(SandboxUnavailable, match="another interpreter"):
        start_script(tmp_path / "python", tmp_path / "x.py", limits=LIMITS)
