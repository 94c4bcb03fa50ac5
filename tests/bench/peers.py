"""Packages that clash with ours by name, each in a virtual environment of its own.

`.peers/<name>/` (git-ignored) is made once and then reused. Invariants: an environment counts only
with the file that is written last, which also holds the recipe, so a half-made or outdated one is
made again; two processes that ask at once get the same one; a peer runs as another process.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / ".peers"
_LAST = "made.txt"


class PeerUnavailable(RuntimeError):
    """A peer's environment could not be made here; the message has the end of pip's output."""


@dataclass(frozen=True)
class Recipe:
    """How an environment is made: arguments of `pip install`, one call after the other."""

    steps: tuple[tuple[str, ...], ...]
    our_torch: bool = False
    """The peer computes with our own torch (same build, same kernels) instead of one of its own."""

    def text(self) -> str:
        """What an environment of this recipe depends on."""
        with_torch = [torch.__version__, torch.__file__] if self.our_torch else []
        return "\n".join([sys.version, *with_torch, *(" ".join(step) for step in self.steps)])


RECIPES = {
    # The wheel does not import with torch 2.13 and later, so it is built from source: some minutes.
    "toploc": Recipe(
        (
            ("ninja", "setuptools<81", "wheel"),
            ("--no-deps", "--no-build-isolation", "--no-binary=toploc", "toploc==0.1.6"),
        ),
        our_torch=True,
    ),
    # Everything else that it needs is beside our torch.
    "trl": Recipe((("--no-deps", "trl==1.16.0"),), our_torch=True),
}


def peer_python(name: str) -> Path:
    """The interpreter of a peer's environment, which is made if there is none.

    Raises PeerUnavailable.
    """
    recipe, home = RECIPES[name], HOME / name
    python, last = home / "bin" / "python", home / _LAST
    HOME.mkdir(exist_ok=True)
    with _alone(HOME / f"{name}.lock"):
        if not last.is_file() or last.read_text() != recipe.text():
            print(f"making .peers/{name}, which may take some minutes", file=sys.stderr, flush=True)
            shutil.rmtree(home, ignore_errors=True)
            _make(recipe, home, python)
            last.write_text(recipe.text())
    return python


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _make(recipe: Recipe, home: Path, python: Path) -> None:
    venv.create(home, with_pip=True)
    if recipe.our_torch:
        (site,) = home.glob("lib/python*/site-packages")
        (site / "our_torch.pth").write_text(f"{Path(torch.__file__).parents[1]}\n")
    path = f"{python.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    for step in recipe.steps:
        command = ["nice", str(python), "-m", "pip", "install", "--disable-pip-version-check"]
        done = subprocess.run(
            [*command, *step],
            cwd=home,
            env=os.environ | {"PATH": path, "MAX_JOBS": str(os.cpu_count() or 1)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode:
            raise PeerUnavailable(
                f"`pip install {' '.join(step)}` failed in {home}; it needs a package index, a "
                f"C++ compiler and Python headers. The end of its output:\n{done.stdout[-1500:]}"
            )
