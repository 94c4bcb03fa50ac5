"""What this node runs: its operator's own list of image name -> local command, or containers.

A pool must not be able to run any command on a stranger's machine. Invariants: a task names an
image, never a command of this machine; its environment variables and arguments reach a local
command only where the list's entry says so by name; without an entry the image runs as a container,
and only where the operator allowed docker.
"""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from infra.pool.agent.errors import BadImages

_SECRET = ("TRACEMILL_POOL_",)
"""Of this prefix are the keys of owners of a pool, which no task is to see."""


class LocalCommand(BaseModel):
    """What an image name stands for on this machine."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    command: list[str] = Field(min_length=1)
    env: list[str] = Field(default=[], description="Variables that it takes from the task.")
    arguments: bool = Field(default=False, description="It takes the task's `cmd` as arguments.")
    key: bool = Field(default=False, description="It signs with the node's key.")


class Images(BaseModel):
    """The file `images.toml`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    images: dict[str, LocalCommand] = {}


def read_images(path: Path) -> Images:
    """The list of a file; BadImages says what is wrong with it."""
    try:
        return Images.model_validate(tomllib.loads(path.read_text("utf-8")))
    except FileNotFoundError:
        return Images()
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, ValidationError) as error:
        raise BadImages(f"list of images {path}: {error}") from error


def local_environment(
    entry: LocalCommand, offered: Mapping[str, str], given: Mapping[str, str]
) -> dict[str, str]:
    """Environment of a local command: ours without secrets, what it takes, what the agent gives."""
    return (
        own_environment()
        | {name: offered[name] for name in entry.env if name in offered}
        | dict(given)
    )


def own_environment() -> dict[str, str]:
    """This agent's environment, without secrets."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_SECRET)}
