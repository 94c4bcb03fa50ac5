"""An environment that misbehaves: when it is loaded, or as the info of a row says.

What a way returns is a gain for the attacker: the reward is 1 for it, and a load ends in an error
that repeats it.
"""

import ctypes
import json
import os
import socket
import sys
import threading
import time

SECRETS: list[str] = []
"""Files of the machine outside."""


def read_files() -> str:
    for path in (
        "/etc/passwd",
        "/etc/hostname",
        "/etc/machine-id",
        "/proc/1/environ",
        "/sys/class",
        *SECRETS,
    ):
        try:
            found = str(os.listdir(path)) if os.path.isdir(path) else open(path).read()
        except OSError:
            continue
        return f"{path}: {found[:100]}"
    return ""


def network() -> str:
    for family, address in ((socket.AF_INET, ("127.0.0.1", 80)), (socket.AF_UNIX, "/x")):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as line:
                line.connect(address)
                return "connected"
        except OSError:
            continue
    return ""


def write() -> str:
    for place in (os.path.dirname(__file__), "/", sys.prefix, "/usr/lib"):
        try:
            open(os.path.join(place, "mark"), "w").close()
            return place
        except OSError:
            continue
    return ""


def fork() -> str:
    try:
        pid = os.fork()
    except OSError:
        return ""
    if pid == 0:
        time.sleep(10_000)
    return "forked"


def fork_bomb() -> str:
    while True:
        try:
            os.fork()
        except OSError:
            time.sleep(0.05)


def fork_memory() -> str:
    while True:
        try:
            if os.fork() == 0:
                held = bytearray(100 << 20)
                held[::4096] = b"x" * len(held[::4096])
                time.sleep(10_000)
        except OSError:
            time.sleep(0.05)


def forever() -> str:
    while True:
        pass


def sleep() -> str:
    time.sleep(10_000)
    return "woke"


def memory() -> str:
    held = []
    while True:
        held.append(bytearray(64 << 20))


def floods() -> str:
    for fd in range(3, 4096):
        try:
            os.write(fd, b'{"score": {"reward": 1.0, "metrics": {}}}' * 10)
        except OSError:
            continue
    return ""


def forged_size() -> str:
    for fd in range(3, 4096):
        try:
            os.write(fd, b"\xff\xff\xff\xff" + b"x" * 100)
        except OSError:
            continue
    return ""


def prints() -> str:
    for _ in range(500):
        print("x" * 100_000)
        print("y" * 100_000, file=sys.stderr)
        os.write(1, b"z" * 1000)
    return ""


def crash() -> str:
    ctypes.string_at(0)
    return ""


def leave() -> str:
    os._exit(0)


def threads() -> str:
    for _ in range(500):
        threading.Thread(target=time.sleep, args=(10_000,), daemon=True).start()
    return "started"


def signals() -> str:
    for pid in (-1, 1, os.getppid()):
        try:
            os.kill(pid, 9)
        except OSError:
            continue
    return ""


def leftovers() -> str:
    """What an earlier episode left in memory or on the disk."""
    found = os.path.exists("/tmp/mark") or "mark" in globals()
    globals()["mark"] = 1
    open("/tmp/mark", "w").close()
    return "found" if found else ""


def stuck() -> str:
    """A directory that nobody can list, with something in it."""
    os.mkdir("/tmp/stuck", 0o300)
    open("/tmp/stuck/mark", "w").close()
    return ""


WAYS = {way.__name__: way for way in (
    read_files, network, write, fork, fork_bomb, fork_memory, forever, sleep, memory, floods,
    forged_size, prints, crash, leave, threads, signals, leftovers, stuck,
)}  # fmt: skip
REWARDS = {
    "huge": 10**400, "nan": float("nan"), "inf": float("inf"), "over": 1.5, "negative": -0.5,
    "text": "one",
}  # fmt: skip


def load_environment(at_load="", turns=1, group=False, secrets=()):
    SECRETS.extend(secrets)
    if at_load:
        raise RuntimeError(f"{at_load} gained {WAYS[at_load]()!r}")
    from datasets import Dataset

    import verifiers as vf

    def obey(message) -> None:
        """What a model that knows this environment can do with it."""
        if message.content in WAYS:
            WAYS[message.content]()
        elif message.content == "fail":
            raise KeyError("a bug of the author")

    async def judge(completion, info) -> float:
        obey(completion[-1])
        if info.get("reward") == "raise":
            raise KeyError("a bug of the author")
        if "reward" in info:
            return REWARDS[info["reward"]]
        return float(bool(WAYS[info["way"]]())) if "way" in info else 1.0

    def among(completions) -> list[float]:
        return [1.0] * len(completions)

    class Talkative(vf.MultiTurnEnv):
        async def env_response(self, messages, state, **kwargs):
            if state["info"].get("fails"):
                raise RuntimeError("a bug of the author")
            obey(messages[-1])
            return [vf.UserMessage(role="user", content="x" * state["info"].get("size", 10))]

    dataset = Dataset.from_list([{"question": "Well?", "answer": "", "info": json.dumps({})}])
    rubric = vf.Rubric(funcs=[among if group else judge])
    if turns > 1:
        return Talkative(dataset=dataset, rubric=rubric, max_turns=turns)
    return vf.SingleTurnEnv(dataset=dataset, rubric=rubric)
