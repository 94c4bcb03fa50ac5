"""The fork server inside the sandbox, and the harness of one program.

Runs as a script of its own in a bare interpreter; imports nothing of ours. The server
never reads a job: it only forks and reports how the child ended. The child reads the job
from a descriptor, gives up its rights and runs it. Expected outputs never come here.
"""

import array
import atexit
import ctypes
import gc
import io
import json
import os
import resource
import select
import signal
import socket
import sys
import threading
import traceback
import types
from typing import Any

Job = dict[str, Any]
SCRATCH = "/tmp"
MAX_LEFTOVERS = 5000
PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP = 4, 38, 22
SECCOMP_MODE_FILTER = 2


class SockFprog(ctypes.Structure):
    """struct sock_fprog of the kernel."""

    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


LIBC = ctypes.CDLL(None, use_errno=True)


def prctl(*args: Any) -> None:
    """The system call, failing loudly."""
    if LIBC.prctl(*args) != 0:
        raise OSError(ctypes.get_errno(), f"prctl{args[:2]}")


def load_filter(bpf: bytes, placeholder: int) -> None:
    """Put a system call filter in force, with this process's id in the placeholder's stead."""
    code = array.array("I", bpf)
    pid = os.getpid()
    for i in range(1, len(code), 2):
        if code[i] == placeholder:
            code[i] = pid
    address, _ = code.buffer_info()
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(SockFprog(len(code) // 2, address)))


def limit_resources(limits: dict[str, int]) -> None:
    """Hard limits of one test; nothing can raise them again."""
    for name, value in limits.items():
        resource.setrlimit(getattr(resource, name), (value, value))


# The child: one program.


def read_all(fd: int) -> bytes:
    """The rest of a descriptor."""
    chunks = []
    while chunk := os.read(fd, 1 << 20):
        chunks.append(chunk)
    os.close(fd)
    return b"".join(chunks)


def module(name: str) -> types.ModuleType:
    """A fresh module under a name that pickling and dataclasses can find."""
    fresh = types.ModuleType(name)
    fresh.__dict__["__builtins__"] = __builtins__
    sys.modules[name] = fresh
    return fresh


def plain(value: Any, depth: int = 0) -> Any:
    """A JSON value as plain built-ins, by type and never by what the object claims."""
    if value is None or value is True or value is False:
        return value
    if depth > 150:
        raise TypeError("nested too deep")
    if isinstance(value, int):
        return int.__add__(value, 0)
    if isinstance(value, float):
        return float.__add__(value, 0.0)
    if isinstance(value, str):
        return str.__getitem__(value, slice(None))
    if isinstance(value, (list, tuple)):
        items = list.__iter__(value) if isinstance(value, list) else tuple.__iter__(value)
        return [plain(item, depth + 1) for item in items]
    if isinstance(value, dict):
        out = {}
        for key, item in dict.items(value):
            if not isinstance(key, str):
                raise TypeError("a key that is not a string")
            out[plain(key)] = plain(item, depth + 1)
        return out
    raise TypeError(f"a {type(value).__name__} is not a JSON value")


def send_result(fd: int, nonce: str, payload: Any) -> None:
    """Write the frame that the outside waits for: nonce, JSON, nonce."""
    data = memoryview((nonce + json.dumps(payload, allow_nan=False) + nonce).encode("ascii"))
    while data:
        data = data[os.write(fd, data) :]


def run_program(job: Job) -> None:
    """A stdin program as `__main__`."""
    main = module("__main__")
    exec(compile(job["source"], "main.py", "exec"), main.__dict__)


def run_call(job: Job, fd: int) -> None:
    """One call of the function, or of the method of class Solution, of that name."""
    namespace = module("candidate").__dict__
    exec(compile(job["source"], "main.py", "exec"), namespace)
    name = job["fn_name"]
    function = namespace.get(name)
    if function is None and "Solution" in namespace:
        function = getattr(namespace["Solution"](), name, None)
    if function is None:
        send_result(fd, job["nonce"], {"error": f"no function {name}"})
        return
    result = function(*json.loads(job["args"]))
    try:
        payload = {"value": plain(result)}
        json.dumps(payload, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        payload = {"error": f"the result is not a JSON value: {error}"}
    send_result(fd, job["nonce"], payload)


def run_model(job: Job, fd: int) -> None:
    """Validate an object with the pydantic model of that name."""
    import pydantic

    namespace = module("config").__dict__
    exec(compile(job["source"], "config.py", "exec"), namespace)
    model = namespace.get(job["model_name"])
    base = pydantic.BaseModel
    if not (isinstance(model, type) and issubclass(model, base) and model is not base):
        send_result(fd, job["nonce"], {"error": f"no pydantic model {job['model_name']}"})
        return
    try:
        model.model_validate(json.loads(job["object"]))
    except pydantic.ValidationError as error:
        send_result(fd, job["nonce"], {"value": False, "why": str(error)[:300]})
    else:
        send_result(fd, job["nonce"], {"value": True})


def fresh_streams() -> None:
    """Text streams over the descriptors of this test, as a new interpreter makes them."""
    streams = {
        "stdin": io.TextIOWrapper(
            io.BufferedReader(io.FileIO(0, "r", closefd=False)), "utf-8", "surrogateescape"
        ),
        "stdout": io.TextIOWrapper(
            io.BufferedWriter(io.FileIO(1, "w", closefd=False)), "utf-8", "surrogateescape"
        ),
        "stderr": io.TextIOWrapper(
            io.BufferedWriter(io.FileIO(2, "w", closefd=False)),
            "utf-8",
            "backslashreplace",
            line_buffering=True,
        ),
    }
    for name, stream in streams.items():
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def finish(status: int) -> int:
    """What an interpreter does at its end: join threads, run exit handlers, flush."""
    join = threading.__dict__["_shutdown"]  # what the interpreter itself calls
    for step in (join, atexit._run_exitfuncs, sys.stdout.flush, sys.stderr.flush):
        try:
            step()
        except BaseException:
            status = status or 1
    return status


def exit_status(error: SystemExit) -> int:
    """The status of a SystemExit, as the interpreter sees it."""
    code = error.code
    if code is None:
        return 0
    if isinstance(code, int):
        return int(code) & 0xFF
    print(code, file=sys.stderr)
    return 1


def child(fds: list[int], bpf: bytes, placeholder: int) -> None:
    """Become the program; never returns."""
    leave = os._exit
    status = 1
    try:
        job_fd, stdin, stdout, stderr, result = fds
        job = json.loads(read_all(job_fd))
        os.dup2(stdin, 0)
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        keep = -1
        if job["mode"] != "program":
            keep = os.dup2(result, 3, inheritable=False)
        os.closerange(4 if keep == 3 else 3, 65536)
        os.chdir(SCRATCH)
        sys.argv = ["main.py"]
        fresh_streams()
        limit_resources(job["limits"])
        load_filter(bpf, placeholder)
        try:
            if job["mode"] == "program":
                run_program(job)
            elif job["mode"] == "call":
                run_call(job, keep)
            else:
                run_model(job, keep)
            status = 0
        except SystemExit as error:
            status = exit_status(error)
        except BaseException:
            traceback.print_exc(limit=5)
        status = finish(status)
    except BaseException:
        traceback.print_exc(limit=5)
    finally:
        leave(status)


# The server.


def clean_scratch() -> bool:
    """Remove what the last program left; False when it left too much to bother."""
    try:
        if os.stat(SCRATCH).st_uid == os.getuid():
            os.chmod(SCRATCH, 0o777)
        pending, seen, directories = [SCRATCH], 0, []
        while pending:
            path = pending.pop()
            with os.scandir(path) as entries:
                for entry in entries:
                    seen += 1
                    if seen > MAX_LEFTOVERS:
                        return False
                    if entry.is_dir(follow_symlinks=False):
                        os.chmod(entry.path, 0o700)
                        pending.append(entry.path)
                        directories.append(entry.path)
                    else:
                        os.unlink(entry.path)
        for path in reversed(directories):
            os.rmdir(path)
    except OSError:
        return False
    return True


def reply(control: socket.socket, message: Any) -> None:
    """One line of JSON to the outside."""
    control.sendall(json.dumps(message).encode("ascii") + b"\n")


def run_one(control: socket.socket, fds: list[int], bpf: bytes, placeholder: int) -> None:
    """Fork the program, wait for it, report how it ended."""
    pid = os.fork()
    if pid == 0:
        control.close()
        child(fds, bpf, placeholder)
    for fd in fds:
        os.close(fd)
    watch = os.pidfd_open(pid)
    killed = False
    try:
        while True:
            sources = [watch] if killed else [control.fileno(), watch]
            if watch in select.select(sources, [], [])[0]:
                break
            # Any word now means "kill it"; end of file means that the owner is gone.
            if not control.recv(1):
                os._exit(0)
            os.kill(pid, signal.SIGKILL)
            killed = True
    finally:
        os.close(watch)
    _, status, usage = os.wait4(pid, 0)
    reply(
        control,
        {
            "exit": os.waitstatus_to_exitcode(status),
            "cpu": usage.ru_utime + usage.ru_stime,
            "rss_kib": usage.ru_maxrss,
            "clean": clean_scratch(),
        },
    )


def serve(control: socket.socket, bpf: bytes, placeholder: int) -> None:
    """Run programs one after the other until the owner closes the line."""
    reply(control, {"ready": True})
    while True:
        data, fds, _, _ = socket.recv_fds(control, 1, 5)
        if not data:
            return
        if data == b"R" and len(fds) == 5:
            run_one(control, fds, bpf, placeholder)


def main(argv: list[str]) -> None:
    """argv: control fd, filter fd, placeholder, uid to become (or -1), packages to preload."""
    control_fd, filter_fd, placeholder, uid = (int(text) for text in argv[1:5])
    filters = read_all(filter_fd)
    middle = 4 + int.from_bytes(filters[:4], "little")
    if uid >= 0:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    os.umask(0o022)
    if argv[5:]:
        sys.path.append("/packages")
        for name in argv[6:]:
            __import__(name)
    gc.collect()
    gc.freeze()  # a fork then shares more pages with the server
    load_filter(filters[4:middle], placeholder)
    serve(socket.socket(fileno=control_fd), filters[middle:], placeholder)


if __name__ == "__main__":
    main(sys.argv)
