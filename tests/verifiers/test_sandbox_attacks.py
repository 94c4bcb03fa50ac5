"""Hostile programs: none gains a point, reads outside, or leaves anything behind.

The programs of data/attacks.toml run once, all in one pool of sandboxes, with short limits; the
tests look at what came of them. Canaries lie on the machine where a program may try to reach: the
environment, a file, open descriptors, a port, local sockets, shared memory.
"""

import ctypes
import json
import os
import secrets
import socket
import threading
import time
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

import verifiers
from verifiers.kinds import code
from verifiers.sandbox import Ended, Limits, launch, run, run_program, slots

# The first test waits for all attacks; on a busy machine programs get more time than their limits.
pytestmark = [pytest.mark.usefixtures("sandbox_here"), pytest.mark.timeout(1800)]

ATTACKS = tomllib.loads((Path(__file__).parent / "data" / "attacks.toml").read_text())["attack"]
CANARY = "CANARY-" + secrets.token_hex(16)
SHORT = Limits(cpu_seconds=1, wall_seconds=3.0)


@dataclass
class Fought:
    """One attack that was run."""

    score: verifiers.Score
    ended: list[Ended]
    seconds: float


@dataclass
class Field:
    """All attacks, and the machine afterwards."""

    fought: dict[str, Fought]
    honest: list[verifiers.Score]
    alive: list[str]
    owned: list[str]
    shm: set[str]


@pytest.fixture(scope="module")
def canaries(tmp_path_factory) -> Iterator[dict[str, Any]]:
    """Places that hold the canary; what the programs get to know of them."""
    directory = tmp_path_factory.mktemp("canary")
    file = directory / "secret.txt"
    file.write_text(CANARY)
    file.chmod(0o644)
    os.environ["CANARY_KEY"] = CANARY
    held = os.open(file, os.O_RDONLY)
    os.set_inheritable(held, True)
    port = socket.create_server(("127.0.0.1", 0))
    unix, abstract = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    unix.bind(str(directory / "s"))
    abstract.bind(f"\0{directory}")
    for server in (port, unix, abstract):
        server.listen()
        threading.Thread(target=_tell, args=(server,), daemon=True).start()
    libc = ctypes.CDLL(None)
    libc.shmat.restype = ctypes.c_void_p
    key = secrets.randbelow(1 << 30) + 1
    segment = libc.shmget(key, 4096, 0o1666)
    ctypes.memmove(libc.shmat(segment, None, 0), CANARY.encode(), len(CANARY))
    try:
        yield {
            "file": str(file),
            "env": "CANARY_KEY",
            "port": port.getsockname()[1],
            "unix": str(directory / "s"),
            "abstract": str(directory),
            "shm": segment,
            "shm_key": key,
        }
    finally:
        libc.shmctl(segment, 0, None)
        for server in (port, unix, abstract):
            server.close()
        os.close(held)
        del os.environ["CANARY_KEY"]


def _tell(server: socket.socket) -> None:
    while True:
        try:
            peer, _ = server.accept()
        except OSError:
            return
        peer.sendall(CANARY.encode())
        peer.close()


@pytest.fixture(scope="module")
def field(canaries) -> Iterator[Field]:
    """Run everything, then close the sandboxes and look at the machine."""
    patch = pytest.MonkeyPatch()
    leased: set[int] = set()
    local = threading.local()
    real_lease, real_run = slots.lease, run.run_job

    def lease() -> slots.Slot:
        slot = real_lease()
        leased.add(slot.uid)
        return slot

    def run_job(*args: Any) -> Ended:
        ended = real_run(*args)
        local.ended.append(ended)
        return ended

    patch.setattr(launch.slots, "lease", lease)
    patch.setattr(code.run, "run_job", run_job)
    patch.setattr(code, "LIMITS", SHORT)

    def fight(attack: dict[str, Any]) -> tuple[str, Fought]:
        started, local.ended = time.monotonic(), []
        score = verifiers.score(
            "prime_rl_code", f"```python\n{attack['code']}\n```", _row(attack, canaries)
        )
        return attack["name"], Fought(score, local.ended, time.monotonic() - started)

    def honest(number: int) -> verifiers.Score:
        local.ended = []
        tests = {"inputs": ["1"], "outputs": [str(number + 1)], "fn_name": "f"}
        answer = f"```python\ndef f(x):\n    return {number} + x\n```"
        return verifiers.score("prime_rl_code", answer, {"test_cases": json.dumps(tests)})

    run.close_idle()
    # Warm workers of earlier tests in this process have warm sandboxes too.
    before = set(_alive(leased))
    try:
        with ThreadPoolExecutor(4) as threads:
            fought = dict(threads.map(fight, ATTACKS))
            fine = list(threads.map(honest, range(8)))
    finally:
        patch.undo()
    run.close_idle()
    # What was killed takes a moment to go.
    found = [process for process in _alive(leased) if process not in before]
    _, alive = psutil.wait_procs(found, timeout=5)
    yield Field(fought, fine, list(map(str, alive)), _owned(leased), set(_segments(leased)))


def _row(attack: dict[str, Any], canaries: dict[str, Any]) -> dict[str, str]:
    given = attack.get("input", json.dumps(canaries))
    output = attack.get("output", json.dumps("TRUTH-" + secrets.token_hex(16)))
    tests = {"inputs": [given], "outputs": [output]}
    if attack.get("call"):
        tests["fn_name"] = "f"
    return {"test_cases": json.dumps(tests)}


def _alive(uids: set[int]) -> list[psutil.Process]:
    """Processes in a sandbox's namespace below this one, or under a user id that we leased."""
    found = []
    here = os.readlink("/proc/self/ns/pid")
    below = {child.pid for child in psutil.Process().children(recursive=True)}
    for process in psutil.process_iter():
        try:
            inside = os.readlink(f"/proc/{process.pid}/ns/pid") != here
            if process.uids().real in uids or (process.pid in below and inside):
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def _owned(uids: set[int]) -> list[str]:
    """Files of those users in places where all may write."""
    places = (Path("/tmp"), Path("/dev/shm"), Path("/var/tmp"), Path("/dev/mqueue"))
    found = []
    for place in places:
        for path in place.glob("*"):
            try:
                if path.lstat().st_uid in uids:
                    found.append(str(path))
            except OSError:
                continue
    return found


def _segments(uids: set[int]) -> Iterator[str]:
    for kind in ("shm", "sem", "msg"):
        for line in Path(f"/proc/sysvipc/{kind}").read_text().splitlines()[1:]:
            if uids & {int(word) for word in line.split() if word.isdigit()}:
                yield line


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack["name"])
def test_attack(attack, field) -> None:
    fought = field.fought[attack["name"]]
    assert fought.score.score == 0, fought
    for ended in fought.ended:
        for stream in (ended.stdout, ended.stderr, ended.result):
            assert CANARY.encode() not in stream, ended
        assert b"ESCAPED" not in ended.stdout, ended.stdout[:500]
    assert fought.seconds < 60


def test_there_are_attacks_of_every_sort() -> None:
    areas = (
        "files network processes memory disk time signals harness comparison environment"
    ).split()
    assert {attack["area"] for attack in ATTACKS} == set(areas)
    assert len(ATTACKS) >= 200


def test_the_verifier_is_fine_afterwards(field) -> None:
    assert [score.score for score in field.honest] == [1.0] * 8


def test_nothing_is_left_on_the_machine(field) -> None:
    assert not field.alive and not field.owned and not field.shm


def test_the_canaries_can_be_found_by_those_who_may(canaries) -> None:
    assert Path(canaries["file"]).read_text() == CANARY
    assert socket.create_connection(("127.0.0.1", canaries["port"])).recv(100) == CANARY.encode()


PLANT = """
import builtins, ctypes, os, sys, time
builtins.LEFT = sys.LEFT = 1
os.environ["LEFT"] = "1"
sys.modules["left"] = sys
sys.path.insert(0, "/tmp")
os.makedirs("/tmp/a/b")
for name in ("/tmp/a/b/c", "/tmp/.hidden", "/tmp/json.py", "/tmp/two\\nlines", b"/tmp/\\xff\\xfe"):
    open(name, "w").write("left")
os.symlink("/nowhere", "/tmp/l")
os.umask(0o777)
os.mkdir("/tmp/closed")
open("/tmp/shut", "w").close()
ctypes.CDLL(None).prctl(15, b"left", 0, 0, 0)
print("planted")
"""
PROBE = """
import builtins, ctypes, glob, os, sys, json
found = os.listdir("/tmp") + [n for n in ("LEFT",) if hasattr(builtins, n) or hasattr(sys, n)]
found += [v for v in os.environ if "LEFT" in v] + [m for m in sys.modules if m == "left"]
found += [p for p in sys.path if p == "/tmp"]
name = ctypes.create_string_buffer(16)
ctypes.CDLL(None).prctl(16, name, 0, 0, 0)
found += [name.value] * (name.value == b"left")
mask = os.umask(0)
found += [mask] * (mask != 0o22)
print(found)
"""


def test_one_program_sees_nothing_of_another() -> None:
    for _ in range(3):
        planted = run_program(PLANT)
        assert planted.stdout == b"planted\n", planted
        assert run_program(PROBE).stdout == b"[]\n"


def test_ten_thousand_files_only_cost_the_sandbox() -> None:
    many = "for i in range(10000): open(f'/tmp/{i}', 'w').close()\nprint('ok')"
    assert run_program(many).stdout == b"ok\n"
    assert run_program("import os\nprint(os.listdir('/tmp'))").stdout == b"[]\n"


def test_limits_of_time() -> None:
    spin = run_program("while True: pass", limits=Limits(cpu_seconds=1))
    assert spin.out_of_time and spin.wall_seconds < 14
    started = time.monotonic()
    sleep = run_program("import time\ntime.sleep(60)", limits=Limits(wall_seconds=1.0))
    assert sleep.out_of_time and not sleep.starved
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    "source",
    [
        "import signal, time\nfor s in range(1, 65):\n    try: signal.signal(s, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\ntime.sleep(60)",
        "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()",
        "import atexit, time\natexit.register(time.sleep, 60)",
        "import sys\nsys.stdin.read()\nimport time\ntime.sleep(60)",
    ],
    ids=["ignores_signals", "stops_itself", "lives_in_a_thread", "lives_at_exit", "waits"],
)
def test_stubborn_programs_die(source) -> None:
    started = time.monotonic()
    assert run_program(source, limits=Limits(wall_seconds=1.0)).out_of_time
    assert time.monotonic() - started < 6


def test_output_flood_is_cut() -> None:
    ended = run_program("while True: print('x' * 10000)", limits=Limits(output_bytes=1 << 20))
    assert ended.out_of_output and len(ended.stdout) <= (1 << 20) + 1


def test_stderr_flood_is_ignored() -> None:
    ended = run_program("import sys\nfor _ in range(300): sys.stderr.write('x' * 10000)\nprint(1)")
    assert ended.stdout == b"1\n" and not ended.out_of_output


def test_threads_and_usual_libraries_work() -> None:
    source = (
        "import threading, asyncio, sys, random, dataclasses, functools, tempfile, heapq\n"
        "sys.setrecursionlimit(10**6)\nthreading.stack_size(256 << 20)\n"
        "def deep(n): return 0 if n == 0 else 1 + deep(n - 1)\n"
        "def main():\n    print(deep(20000))\n    asyncio.run(asyncio.sleep(0))\n"
        "    with tempfile.TemporaryFile() as f: f.write(b'x')\n    print('done')\n"
        "ts = [threading.Thread(target=sum, args=([1],)) for _ in range(10)]\n"
        "[t.start() for t in ts]; [t.join() for t in ts]\n"
        "threading.Thread(target=main).start()\n"
    )
    ended = run_program(source)
    assert ended.stdout == b"20000\ndone\n", ended


def test_exit_handlers_and_stdin_work_as_in_an_interpreter() -> None:
    source = "import atexit, sys\natexit.register(print, 'bye')\nprint(sys.stdin.read(), end='')"
    ended = run_program(source, stdin="a\nb é\n")
    assert ended.stdout.decode() == "a\nb é\nbye\n"


def test_exit_status_after_right_output_is_not_looked_at() -> None:
    tests = json.dumps({"inputs": [""], "outputs": ["42"]})
    got = verifiers.score(
        "prime_rl_code", "```python\nprint(42)\nraise SystemExit(3)\n```", {"test_cases": tests}
    )
    assert got.score == 1, got


def test_crash_and_timeout_have_their_status() -> None:
    tests = {"test_cases": json.dumps({"inputs": [""], "outputs": ["42"]})}
    crash = verifiers.score("prime_rl_code", "```python\n1 / 0\n```", tests)
    assert (crash.score, crash.status) == (0, "crash") and "ZeroDivisionError" in crash.detail
    assert code.LIMITS.cpu_seconds == 5 and code.LIMITS.wall_seconds == 15
