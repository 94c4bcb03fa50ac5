"""What runs in an environment's own virtual environment: `load_environment`, then episodes.

A script; it imports the PyPI library `verifiers` and nothing of ours. One process loads the
environment once and forks for each episode, so that an episode can be killed alone and leaves
nothing behind: not in memory, nor in the scratch directory once no other episode runs. The
model's turn of the library's own rollout is a message to the outside: no endpoint, no network.
Frames on a socket: 4 bytes of length, then JSON.
"""

import asyncio
import builtins
import functools
import importlib
import inspect
import json
import os
import signal
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

HEADER = struct.Struct(">I")
REASON_LIMIT = 2000
EPISODE_LIMITS = "episode_limits"
"""Key of the load request with the resource limits of one episode."""

confine: Callable[[dict[str, int]], None]
"""Put here by the sandbox: lower the limits and take away the right to start processes."""
control: int
"""Put here by the sandbox: the descriptor of the socket to the outside."""


class Line:
    """Frames to and from the outside."""

    def __init__(self, sock: socket.socket):
        self.sock = sock

    def send(self, message: dict[str, Any]) -> None:
        """Write one frame; a value that is no JSON is an error of the environment."""
        body = json.dumps(message, allow_nan=True).encode("ascii")
        self.sock.sendall(HEADER.pack(len(body)) + body)

    def receive(self) -> tuple[dict[str, Any], list[int]]:
        """The next frame and the descriptors that came with it; EOFError when there is none."""
        header, fds, _, _ = socket.recv_fds(self.sock, HEADER.size, 1)
        while header and len(header) < HEADER.size:
            header += self.sock.recv(HEADER.size - len(header))
        if not header:
            raise EOFError
        (length,) = HEADER.unpack(header)
        body = bytearray()
        while len(body) < length:
            chunk = self.sock.recv(min(length - len(body), 1 << 20))
            if not chunk:
                raise EOFError
            body += chunk
        return json.loads(bytes(body)), fds


def reason(error: BaseException) -> str:
    """An exception with its causes, in one line."""
    parts: list[str] = []
    seen: BaseException | None = error
    while seen is not None and len(parts) < 5:
        parts.append(f"{type(seen).__name__}: {seen}")
        seen = seen.__cause__
    return " <- ".join(parts)[:REASON_LIMIT]


def library(module: str = "") -> Any:
    """A module of the PyPI library `verifiers`; ours of that name is not visible here."""
    return importlib.import_module(f"verifiers.{module}" if module else "verifiers")


def plain(value: Any) -> Any:
    """Messages and tools of the library as JSON objects, without empty fields."""
    if hasattr(value, "model_dump"):
        value = value.model_dump()
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


# Loading.


def load(request: dict[str, Any]) -> Any:
    """The environment, by the rule of the library: the last part of the id names the module."""
    name = request["environment"].split("/")[-1].split("@")[0].replace("-", "_")
    environment = importlib.import_module(name).load_environment(**request["args"])
    if hasattr(environment, "timeout_seconds"):
        environment.timeout_seconds = None  # the clock of a run is ours, and so are its limits
    return environment


def describe(environment: Any) -> dict[str, Any]:
    """What the outside may know of an environment."""
    return {
        "rows": len(environment.get_dataset()),
        "single_turn": isinstance(environment, library().SingleTurnEnv),
        "compares_groups": bool(getattr(environment, "requires_group_rollouts", False)),
    }


def rows(environment: Any, start: int, count: int) -> list[Any]:
    """Rows of the dataset: prompt, answer, info and whatever else the environment put there."""
    dataset = environment.get_dataset()
    return [plain(dataset[i]) for i in range(start, min(start + count, len(dataset)))]


# One episode.


def relay(line: Line, think: bool) -> Any:
    """A client of the library whose model sits at the other end of the line."""
    client, types = library("clients").Client, library("types")
    shown = 0

    async def get_response(
        self: Any, prompt: Any, model: str, sampling_args: Any, tools: Any = None, **_: Any
    ) -> Any:
        nonlocal shown
        messages = plain(list(prompt))
        line.send(
            {"turn": {"messages": messages[shown:], "of": len(messages), "tools": plain(tools)}}
        )
        message = line.receive()[0]["message"]
        shown = len(messages) + 1
        content = message.get("content") or ""
        made = types.ResponseMessage(
            role="assistant",
            content=f"<think>\n</think>\n{content}" if think else content,
            tool_calls=message.get("tool_calls") or None,
            finish_reason="tool_calls" if message.get("tool_calls") else "stop",
            is_truncated=False,
        )
        return types.Response(
            id=f"turn-{shown}", created=int(time.time()), model=model, message=made
        )

    def unused(self: Any, *_: Any, **__: Any) -> Any:
        raise RuntimeError("an environment here has no endpoint of a model")

    methods = dict.fromkeys(client.__abstractmethods__, unused)
    return type("Relay", (client,), {**methods, "get_response": get_response})(None)


def watch_reward_functions() -> list[str]:
    """The library turns an exception of a reward function into a reward of 0; note it instead."""
    rubric = library("rubrics.rubric").Rubric
    errors: list[str] = []
    call = rubric._call_individual_reward_func

    async def noted(self: Any, func: Any, state: Any) -> Any:
        @functools.wraps(func)
        async def watched(*args: Any, **kwargs: Any) -> Any:
            try:
                value = func(*args, **kwargs)
                return float(await value if inspect.isawaitable(value) else value)
            except Exception as error:
                errors.append(f"{getattr(func, '__name__', func)}: {reason(error)}")
                raise

        return await call(self, watched, state)

    rubric._call_individual_reward_func = noted
    return errors


async def play(environment: Any, line: Line) -> None:
    """The rollout of one row, then its score."""
    errors = watch_reward_functions()
    row = line.receive()[0]["row"]
    client = relay(line, isinstance(environment.parser, library().ThinkParser))
    state = await environment.rollout(row, client, "model", {})
    error = state.get("error")
    if error is not None and not isinstance(error, library("errors").ToolParseError):
        # A call that cannot be read is the model's error, every other one the environment's.
        raise error
    line.send({"end": {"stop": state.get("stop_condition"), "turns": len(state["trajectory"])}})
    line.receive()
    await environment.rubric.score_rollout(state)
    if errors:
        raise RuntimeError(f"a reward function failed: {errors[0]}")
    metrics = {str(key): float(value) for key, value in (state["metrics"] or {}).items()}
    line.send({"score": {"reward": float(state["reward"]), "metrics": metrics}})


def episode(environment: Any, line: Line, limits: dict[str, int]) -> None:
    """The life of a forked process."""
    try:
        confine(limits)  # noqa: F821
        asyncio.run(play(environment, line))
    except EOFError:
        pass  # the outside lost interest
    except BaseException as error:
        line.send({"error": reason(error)})


# The server.


def answer(request: dict[str, Any], environment: Any) -> dict[str, Any]:
    """The reply to a request about the dataset."""
    try:
        return {"rows": rows(environment, request["start"], request["count"])}
    except Exception as error:
        return {"error": reason(error)}


def files(top: str) -> dict[str, tuple[int, ...]]:
    """What lies below a directory, with what a change of it changes."""
    found: dict[str, tuple[int, ...]] = {}
    pending = [top]
    while pending:
        for entry in os.scandir(pending.pop()):
            about = entry.stat(follow_symlinks=False)
            if entry.is_dir(follow_symlinks=False):
                found[entry.path] = (about.st_ino,)
                pending.append(entry.path)
            else:
                found[entry.path] = (about.st_ino, about.st_size, about.st_mtime_ns)
    return found


def tidy(scratch: str, kept: dict[str, tuple[int, ...]]) -> None:
    """Remove what episodes left. What cannot be removed or mended is an error: it ends us all."""
    found = files(scratch)
    for path in sorted(found.keys() - kept.keys(), reverse=True):  # what is inside comes first
        (os.rmdir if len(found[path]) == 1 else os.unlink)(path)
    if files(scratch) != kept:
        raise RuntimeError("an episode changed what the environment keeps in its scratch directory")


def serve(line: Line) -> None:
    """Load, then answer and fork until the outside is gone."""
    scratch = os.getcwd()
    request, _ = line.receive()
    try:
        environment = load(request)
        line.send({"loaded": describe(environment)})
    except BaseException as error:
        line.send({"error": reason(error)})
        return
    children: dict[int, int] = {}
    kept = files(scratch)
    while True:
        message, fds = line.receive()
        if "rows" in message:
            line.send(answer(message["rows"], environment))
        elif "kill" in message:
            pid = children.pop(message["kill"], 0)
            if pid:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                if not children:
                    tidy(scratch, kept)
            line.send({"killed": message["kill"]})
        elif "episode" in message and fds:
            pid = os.fork()
            if pid == 0:
                line.sock.close()
                episode(environment, Line(socket.socket(fileno=fds[0])), request[EPISODE_LIMITS])
                os._exit(0)
            children[message["episode"]] = pid
            os.close(fds[0])


def main() -> None:
    """Keep the environment's prints off every stream that anybody reads, and serve."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1):
        os.dup2(nowhere, fd)
    builtins.input = lambda prompt="": ""
    os.environ.update(
        HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", HF_HOME="/tmp/hf", DO_NOT_TRACK="1"
    )
    try:
        serve(Line(socket.socket(fileno=control)))  # noqa: F821
    except EOFError:
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
