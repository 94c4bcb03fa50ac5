"""The harness of one program: a process takes the job, gives up its rights and runs it.

Expected outputs never come here.
"""

import atexit
import io
import json
import os
import sys
import threading
import traceback
import types
from typing import Any

from .confine import close_from, limit_resources, load_filter

Job = dict[str, Any]


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


def child(fds: list[int], settings: Any) -> None:
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
        close_from(4 if keep == 3 else 3)
        os.chdir(settings.scratch)
        sys.argv = ["main.py"]
        fresh_streams()
        limit_resources(job["limits"])
        load_filter(settings.program_filter, settings.placeholder)
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
