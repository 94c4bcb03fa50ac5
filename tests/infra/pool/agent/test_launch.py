"""What a pool can make a node run: its own list, and containers that get nothing else."""

from pathlib import Path

import pytest

from infra.pool.agent.errors import BadImages, BadKeyFile, BadMount, NoImage
from infra.pool.agent.identity import NODE_KEY, load_key, p2p_seed
from infra.pool.agent.images import Images, LocalCommand, read_images
from infra.pool.agent.launch import Launcher, config_hash
from infra.pool.agent.links import Links
from infra.pool.wire import Assignment, VolumeMount
from infra.reaper import AGENT


def task(**changes) -> Assignment:
    values = {
        "id": "0b7e", "name": "t", "image": "org/infer:1", "env_vars": {}, "cmd": None,
        "entrypoint": None, "volume_mounts": [], "sharded": False,
    }  # fmt: skip
    return Assignment(**values | changes)


@pytest.fixture
def launcher(tmp_path, monkeypatch):
    """Makes launchers; docker is a file that is never started."""
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(docker.parent))
    monkeypatch.setenv("TRACEMILL_POOL_ADMIN_KEY", "the owner's")
    (tmp_path / "key").write_bytes(bytes(32))
    return lambda images=None, docker=False: Launcher(
        Images(images=images or {}), "ab" * 32, tmp_path / "key", tmp_path / "work", "mark",
        docker=docker, p2p_seed=7,
        links=Links(tmp_path / "key", tmp_path / "links"),
    )  # fmt: skip


def test_an_image_that_is_not_in_the_list_is_not_run(launcher):
    known = {"org/other": LocalCommand(command=["true"])}
    with pytest.raises(
        NoImage, match=r"'org/infer:1' is not in this node's own list \(org/other\)"
    ):
        launcher(known).launch(task())


def test_a_local_command_takes_from_the_task_what_its_entry_names(launcher):
    asked = task(
        cmd=["--seed", "${WORKER_P2P_SEED}"],
        env_vars={"LD_PRELOAD": "/evil.so", "MODEL": "m at ${SOCKET_PATH}", "GROUP_INDEX": "0"},
    )
    plain = LocalCommand(command=["serve"])
    launch = launcher({"org/infer:1": plain}).launch(asked)
    assert launch.command == ("serve",)
    assert "LD_PRELOAD" not in launch.env and "MODEL" not in launch.env
    assert NODE_KEY not in launch.env and "TRACEMILL_POOL_ADMIN_KEY" not in launch.env
    open_ = LocalCommand(command=["serve"], env=["MODEL"], arguments=True, key=True)
    launch = launcher({"org/infer:1": open_}).launch(asked)
    assert launch.command == ("serve", "--seed", "7")
    assert launch.env["MODEL"] == f"m at {launch.socket}" and launch.env[NODE_KEY]
    assert launch.env["NODE_ADDRESS"] == "ab" * 32 and launch.env["PRIME_TASK_ID"] == "0b7e"


def pairs(command: tuple[str, ...], option: str) -> list[str]:
    return [command[at + 1] for at, part in enumerate(command) if part == option]


def test_a_container_is_marked_unprivileged_and_sees_only_its_own_directories(launcher, tmp_path):
    asked = task(
        cmd=["--next", "x", "${WORKER_P2P_SEED}"],
        entrypoint=["python", "-m", "serve"],
        env_vars={"RUN": "1"},
        volume_mounts=[
            VolumeMount(host_path="/../../etc", container_path="/state"),
            VolumeMount(host_path="/group-7-state", container_path="/cache"),
        ],
    )
    launch = launcher(docker=True).launch(asked)
    command = launch.command
    assert pairs(command, "--label") == [f"{AGENT}=mark"]
    assert pairs(command, "--cap-drop") == ["ALL"]
    assert "--privileged" not in command and "--network" not in command
    volumes = [volume.split(":") for volume in pairs(command, "--volume")]
    assert {inside for _, inside in volumes} == {"/data", "/run/tracemill", "/state", "/cache"}
    assert all(host.startswith(str(tmp_path / "work")) for host, _ in volumes)
    assert dict(volumes)[str(launch.data)] == "/data"
    at = command.index("org/infer:1")
    assert pairs(command, "--entrypoint") == ["python"]
    assert command[at + 1 :] == ("-m", "serve", "--next", "x", "7")
    assert "RUN=1" in command and not any("owner's" in part for part in command)
    assert launch.container == f"prime-task-0b7e-{config_hash(asked)}"


@pytest.mark.parametrize("image", ["--privileged", "-v=/:/host", "", "a b", "-"])
def test_an_image_is_no_option_of_docker(launcher, image):
    asked = task(image=image, cmd=["org/evil", "sh"])
    assert not launcher(docker=True).knows(asked)
    with pytest.raises(NoImage, match="no image name"):
        launcher(docker=True).launch(asked)


def test_no_mount_lies_in_what_a_container_can_write(launcher, tmp_path):
    """It would put a link to / where the next mount's source was."""
    paths = ["/", "a", "a/b", "a/b/c", "../data", "data", "a:/etc"]
    asked = task(
        volume_mounts=[
            VolumeMount(host_path=path, container_path=f"/m{number}")
            for number, path in enumerate(paths)
        ]
    )
    command = launcher(docker=True).launch(asked).command
    sources = [Path(volume.split(":")[0]) for volume in pairs(command, "--volume")]
    assert len(set(sources)) == len(paths) + 2
    assert not any(a in b.parents for a in sources for b in sources)
    for wrong in ("/x:/y", "x", "/x:rshared"):
        asked = task(volume_mounts=[VolumeMount(host_path="a", container_path=wrong)])
        with pytest.raises(BadMount, match="absolute paths"):
            launcher(docker=True).launch(asked)


def test_a_container_without_a_command_sleeps_and_the_hash_follows_the_task(launcher):
    assert launcher(docker=True).launch(task()).command[-2:] == ("sleep", "infinity")
    assert config_hash(task()) != config_hash(task(env_vars={"A": "1"}))
    assert config_hash(task()) == config_hash(task(name="other"))


def test_the_list_of_images_is_read_or_refused(tmp_path):
    path = tmp_path / "images.toml"
    assert read_images(path).images == {}
    path.write_text('[images."a/b"]\ncommand = ["x", "y"]\nenv = ["HF_HOME"]\n')
    assert read_images(path).images["a/b"].env == ["HF_HOME"]
    for wrong in ("[images", "[images.a]\ncommand = []\n", '[images.a]\ncommand=["x"]\nshell=1\n'):
        path.write_text(wrong)
        with pytest.raises(BadImages, match=r"images\.toml"):
            read_images(path)


def test_the_key_is_made_once_and_refused_where_others_can_read_it(tmp_path):
    path = tmp_path / "config" / "node.key"
    node_id = load_key(path).node_id
    assert load_key(path).node_id == node_id and path.stat().st_mode & 0o777 == 0o600
    assert p2p_seed(path) == p2p_seed(path) < 2**64
    path.chmod(0o644)
    with pytest.raises(BadKeyFile, match="chmod 600"):
        load_key(path)
    path.chmod(0o600)
    path.write_bytes(b"short")
    with pytest.raises(BadKeyFile, match="has 5 bytes"):
        load_key(path)
