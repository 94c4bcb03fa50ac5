"""A process gives up rights: user id, files (Landlock), resources, system calls."""

import array
import ctypes
import os
import resource
from typing import Any

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38
SECCOMP_MODE_FILTER = 2
SYS_LANDLOCK_CREATE, SYS_LANDLOCK_ADD, SYS_LANDLOCK_RESTRICT = 444, 445, 446
SYS_CLOSE_RANGE = 436
LANDLOCK_VERSION_FLAG, LANDLOCK_PATH_BENEATH = 1, 1
LANDLOCK_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1}
"""Rights on files that each version of Landlock knows; later ones are not about files."""
READ_FILE, READ_DIR, WRITE_FILE, TRUNCATE = 1 << 2, 1 << 3, 1 << 1, 1 << 14
ACCESS = {
    "list": READ_DIR,
    "read": READ_FILE | READ_DIR,
    "device": READ_FILE | WRITE_FILE | TRUNCATE,
    "write": ~0,
}


class SockFprog(ctypes.Structure):
    """struct sock_fprog of the kernel."""

    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


class PathBeneath(ctypes.Structure):
    """struct landlock_path_beneath_attr of the kernel."""

    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("fd", ctypes.c_int32)]


LIBC = ctypes.CDLL(None, use_errno=True)


def prctl(*args: Any) -> None:
    """The system call, failing loudly."""
    if LIBC.prctl(*args) != 0:
        raise OSError(ctypes.get_errno(), f"prctl{args[:2]}")


def syscall(number: int, *args: Any) -> int:
    """A system call that libc has no function for, failing loudly."""
    result = int(LIBC.syscall(number, *args))
    if result < 0:
        raise OSError(ctypes.get_errno(), f"syscall {number}")
    return result


def close_from(first: int) -> None:
    """Close all descriptors from that one on; Python's own way may try each of thousands."""
    try:
        syscall(SYS_CLOSE_RANGE, first, ctypes.c_uint(2**32 - 1), 0)
    except OSError:
        os.closerange(first, 65536)


def become(uid: int) -> None:
    """Turn into an unprivileged user, for good; no core dumps, no tracing."""
    if uid >= 0:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    os.umask(0o022)


def die_with(parent: int) -> None:
    """Have the kernel kill this process when that parent ends."""
    prctl(PR_SET_PDEATHSIG, 9, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def restrict_files(rules: list[list[str]]) -> None:
    """Landlock: from now on only these paths, [path, access] each, can be opened or changed."""
    version = syscall(SYS_LANDLOCK_CREATE, None, 0, LANDLOCK_VERSION_FLAG)
    known = LANDLOCK_RIGHTS[min(version, max(LANDLOCK_RIGHTS))]
    handled = ctypes.c_uint64(known)
    ruleset = syscall(SYS_LANDLOCK_CREATE, ctypes.byref(handled), 8, 0)
    for path, access in rules:
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        allowed = ACCESS[access] & known
        if not os.path.isdir(path):
            allowed &= READ_FILE | WRITE_FILE | TRUNCATE
        rule = PathBeneath(allowed, fd)
        syscall(SYS_LANDLOCK_ADD, ruleset, LANDLOCK_PATH_BENEATH, ctypes.byref(rule), 0)
        os.close(fd)
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    syscall(SYS_LANDLOCK_RESTRICT, ruleset, 0)
    os.close(ruleset)


def load_filter(bpf: bytes, placeholder: int) -> None:
    """Put a system call filter in force, with this process's id in the placeholder's stead."""
    code = array.array("I", bpf)
    pid = os.getpid()
    for i in range(1, len(code), 2):
        if code[i] == placeholder:
            code[i] = pid
    address, _ = code.buffer_info()
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(SockFprog(len(code) // 2, address)))


def limit_resources(limits: dict[str, int]) -> None:
    """Hard limits; nothing can raise them again."""
    for name, value in limits.items():
        resource.setrlimit(getattr(resource, name), (value, value))
