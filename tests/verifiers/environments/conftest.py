import base64
import hashlib
import tempfile
import tomllib
import zipfile
from pathlib import Path

import pytest

SOURCES = Path(__file__).parent / "wheels"


def build_wheel(source: Path, where: Path) -> None:
    """A wheel of a project with one module, as a build backend would make it."""
    project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
    name, version = project["name"].replace("-", "_"), project["version"]
    metadata = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {version}"]
    metadata += [f"Requires-Dist: {wanted}" for wanted in project["dependencies"]]
    tags = ["Wheel-Version: 1.0", "Root-Is-Purelib: true", "Tag: py3-none-any"]
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": (source / f"{name}.py").read_text(),
        f"{info}/METADATA": "\n".join(metadata) + "\n",
        f"{info}/WHEEL": "\n".join(tags) + "\n",
    }
    record = [f"{path},{sha256(text)},{len(text.encode())}" for path, text in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,"]) + "\n"
    with zipfile.ZipFile(where / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)


def sha256(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return "sha256=" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


@pytest.fixture(scope="session")
def wheels(tmp_path_factory) -> Path:
    """A directory with the wheels of the environments beside this file."""
    where = tmp_path_factory.mktemp("wheels")
    for source in sorted(SOURCES.iterdir()):
        build_wheel(source, where)
    return where


def lines_of(wheels: Path, *names: str) -> str:
    """Lines of a lock for wheels in a directory."""
    found = [next(wheels.glob(f"{name}-*.whl")) for name in names]
    return "".join(
        f"{name}==0.1.0 --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"
        for name, wheel in zip(names, found, strict=True)
    )


@pytest.fixture(scope="session")
def lock_text(wheels):
    """(names of wheels) -> text of a lock of them alone."""
    return lambda *names: lines_of(wheels, *names)


@pytest.fixture(scope="session")
def secrets(cache):
    """Files that anybody on this machine can read: in a public place, beside the environments."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as public:
        Path(public).chmod(0o755)
        files = [Path(public) / "secret", cache / "secret", cache / "environments" / "secret"]
        for file in files:
            file.parent.mkdir(exist_ok=True)
            file.write_text("a secret of this machine")
            file.chmod(0o644)
        yield [str(file) for file in files]


@pytest.fixture(scope="session")
def cache(tmp_path_factory) -> Path:
    """A cache of environments that this session shares."""
    return tmp_path_factory.mktemp("cache")
