import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = Path(__file__).parent / "wheels"


@pytest.fixture(scope="session")
def wheels(tmp_path_factory) -> Path:
    """A directory with the wheels of the environments beside this file, built with setuptools."""
    where = tmp_path_factory.mktemp("wheels")
    for source in SOURCES.iterdir():
        shutil.copytree(source, where / "sources" / source.name)
    command = [sys.executable, "-P", "-m", "pip", "wheel", "--quiet", "--no-deps"]
    options = ["--no-build-isolation", "--wheel-dir", str(where / "wheels")]
    sources = [str(path) for path in (where / "sources").iterdir()]
    subprocess.run([*command, *options, *sources], check=True, cwd=where)
    return where / "wheels"


@pytest.fixture(scope="session")
def cache(tmp_path_factory) -> Path:
    """A cache of environments that this session shares."""
    return tmp_path_factory.mktemp("cache")
