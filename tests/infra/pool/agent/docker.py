"""A docker without a daemon: containers are processes in namespaces with their own mounts.

As with the real one, ending the client of `run` does not end its container, a name is taken until
its container is gone, and a container sees what is mounted and no other path of the machine's
/data. `DOCKER_STATE` names the directory of its state; `images.json` there says what an image runs.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from verifiers.sandbox.profile import bwrap_path

STATE = Path(os.environ["DOCKER_STATE"])
FLAGS = {"--rm", "--interactive", "--init"}
HIDDEN = {"proc", "dev", "data", "run"}


def run(arguments: list[str]) -> int:
    options: dict[str, list[str]] = {}
    while arguments[0].startswith("-"):
        option = arguments.pop(0)
        if option not in FLAGS:
            options.setdefault(option, []).append(arguments.pop(0))
    image, *command = arguments
    container = STATE / options["--name"][0]
    try:
        container.mkdir()
    except FileExistsError:
        print(f"Conflict. The container name {container.name} is already in use", file=sys.stderr)
        return 125
    mounts = []
    for name in set(os.listdir("/")) - HIDDEN:
        mounts += ["--ro-bind", f"/{name}", f"/{name}"]
    for volume in options.get("--volume", []):
        mounts += ["--bind", *volume.split(":")]
    environment = dict(value.split("=", 1) for value in options.get("--env", []))
    inner = json.loads((STATE / "images.json").read_text())[image] + command
    process = subprocess.Popen(
        [bwrap_path(), *mounts, "--proc", "/proc", "--dev", "/dev", *inner],
        env=environment,
        start_new_session=True,
    )
    (container / "pid").write_text(str(process.pid))
    code = process.wait()
    remove(container)
    return code


def remove(container: Path) -> None:
    (container / "pid").unlink(missing_ok=True)
    if container.exists():
        container.rmdir()


def rm(names: list[str]) -> int:
    for name in names:
        pid = STATE / name / "pid"
        if pid.exists():
            try:
                os.killpg(int(pid.read_text()), signal.SIGKILL)
            except ProcessLookupError:
                pass
            time.sleep(0.2)
            remove(STATE / name)
    return 0


if __name__ == "__main__":
    action, *rest = sys.argv[1:]
    with (STATE / "log").open("a") as log:
        log.write(json.dumps(sys.argv[1:]) + "\n")
    sys.exit({"run": run, "rm": lambda words: rm(words[1:]), "ps": lambda words: 0}[action](rest))
