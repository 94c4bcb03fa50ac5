"""Starts what a task names: a local command of the operator's own list, or a container.

A container gets the task's variables and arguments, a directory `/data` of its own, mounts below
the task's directory on this machine whatever paths the task names, the bridge's socket, no
privileges, and the cards. It carries the agent's mark as a label (infra/reaper.py). Invariants: an
image is a name and never an option of docker; no mount's source lies inside another's, because what
a container can write it can also replace by a link, and docker follows links of this machine.
"""

import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from infra.pool.agent.bridge import DATA
from infra.pool.agent.errors import BadMount, NoImage
from infra.pool.agent.identity import NODE_KEY
from infra.pool.agent.images import Images, local_environment, own_environment
from infra.pool.agent.links import Links
from infra.pool.agent.machine import cards
from infra.pool.agent.worker import Worker
from infra.pool.wire import Assignment
from infra.reaper import AGENT

SOCKET = "bridge.sock"
SOCKET_DIR = "/run/tracemill"
MAX_PROCESSES = 32_768
"""Processes and threads of a container; an engine on eight cards has some thousand."""
_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]*")


@dataclass(frozen=True)
class Launch:
    """A command with its environment, and where its parts lie on this machine."""

    command: tuple[str, ...]
    env: Mapping[str, str]
    data: Path
    """What it writes; `/data` of a container."""
    socket: Path
    container: str = ""
    """Name of the container."""

    def worker(self) -> Worker:
        """Start it as a worker of shards."""
        return Worker(self.command, self.env, self.container)

    def out(self) -> tuple[Path, str]:
        """A new directory below `data` for what a shard makes, and its name for the process."""
        made = Path(tempfile.mkdtemp(prefix="out-", dir=self.data))
        if not self.container:
            return made, str(made)
        # Another user may write there; others of this machine do not come through `data`'s parent.
        made.chmod(0o777)
        return made, f"{DATA}/{made.name}"


class Launcher:
    """This node's ways to run an image."""

    def __init__(
        self,
        images: Images,
        node_id: str,
        key_file: Path,
        work_dir: Path,
        mark: str,
        *,
        docker: bool,
        p2p_seed: int,
        links: Links,
    ):
        self._images, self._node_id, self._key_file = images, node_id, key_file
        self._work_dir, self._mark, self._p2p_seed = work_dir, mark, p2p_seed
        self._links = links
        self._docker = shutil.which("docker") if docker else None

    def launch(self, task: Assignment) -> Launch:
        """How a task is started here; NoImage where it cannot be."""
        home = self._work_dir / hashlib.sha256(task.id.encode()).hexdigest()[:16]
        data = home / "data"
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        data.mkdir(exist_ok=True)
        entry = self._images.images.get(task.image)
        given = {"NODE_ADDRESS": self._node_id, "PRIME_TASK_ID": task.id}
        if entry is not None:
            # A socket's path is at most 107 bytes long.
            socket = home / SOCKET
            values = {"SOCKET_PATH": str(socket), "WORKER_P2P_SEED": str(self._p2p_seed)}
            given["PRIME_MONITOR__SOCKET__PATH"] = str(socket)
            if entry.key:
                given |= {NODE_KEY: str(self._key_file)} | self._links.environment()
            arguments = task.cmd or [] if entry.arguments else []
            command = (*entry.command, *(_filled(part, values) for part in arguments))
            offered = {name: _filled(text, values) for name, text in task.env_vars.items()}
            return Launch(command, local_environment(entry, offered, given), data, socket)
        if self._docker is None or not _IMAGE.fullmatch(task.image):
            raise NoImage(task.image, sorted(self._images.images))
        return self._container(task, home, given)

    def knows(self, task: Assignment) -> bool:
        """Whether it can be started here."""
        named = _IMAGE.fullmatch(task.image) is not None
        return task.image in self._images.images or (self._docker is not None and named)

    def canary(self, image: str) -> Launch:
        """How an image is started by itself."""
        bare = Assignment(
            id="canary", name="canary", image=image, env_vars={}, cmd=None, entrypoint=None,
            volume_mounts=[], sharded=True,
        )  # fmt: skip
        return self.launch(bare)

    def _container(self, task: Assignment, home: Path, given: Mapping[str, str]) -> Launch:
        assert self._docker is not None
        inside = f"{SOCKET_DIR}/{SOCKET}"
        values = {"SOCKET_PATH": inside, "WORKER_P2P_SEED": str(self._p2p_seed)}
        env = {name: _filled(text, values) for name, text in task.env_vars.items()}
        env |= dict(given) | {"PRIME_MONITOR__SOCKET__PATH": inside}
        sockets = home / "socket"
        sockets.mkdir(exist_ok=True)
        # The user inside may be another one.
        (home / "data").chmod(0o777)
        mounts = [(home / "data", DATA), (sockets, SOCKET_DIR)]
        for mount in task.volume_mounts:
            inside_path = mount.container_path
            if ":" in inside_path or not inside_path.startswith("/"):
                raise BadMount(inside_path)
            host = home / "mounts" / hashlib.sha256(mount.host_path.encode()).hexdigest()[:16]
            host.mkdir(parents=True, exist_ok=True)
            mounts.append((host, inside_path))
        command = task.cmd if task.cmd is not None or task.sharded else ["sleep", "infinity"]
        parts = [
            self._docker, "run", "--rm", "--interactive", "--init",
            "--name", f"prime-task-{task.id}-{config_hash(task)}",
            "--label", f"{AGENT}={self._mark}",
            "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
            "--pids-limit", str(MAX_PROCESSES),
            "--memory", str(psutil.virtual_memory().total * 9 // 10),
            "--shm-size", str(psutil.virtual_memory().total // 2),
            *(["--gpus", "all"] if cards() else []),
            *(part for host, path in mounts for part in ("--volume", f"{host}:{path}")),
            *(part for name in sorted(env) for part in ("--env", f"{name}={env[name]}")),
            *(["--entrypoint", task.entrypoint[0]] if task.entrypoint else []),
            task.image,
            *(task.entrypoint or [])[1:],
            *(_filled(part, values) for part in command or []),
        ]  # fmt: skip
        name = parts[parts.index("--name") + 1]
        return Launch(tuple(parts), own_environment(), home / "data", sockets / SOCKET, name)


def config_hash(task: Assignment) -> str:
    """Changes with everything that a container is started with."""
    parts = [
        task.image, task.cmd, task.entrypoint, sorted(task.env_vars.items()),
        sorted((mount.host_path, mount.container_path) for mount in task.volume_mounts),
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _filled(text: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(f"${{{name}}}", value)
    return text
