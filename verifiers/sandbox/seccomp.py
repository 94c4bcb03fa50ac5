"""The system call filter of a program under test: a list of what is allowed.

Threads may be started, processes may not; sockets do not exist; signals reach only the
program itself. Both filters are compiled outside; the program's own is loaded right before
it runs, and OWN_PID stands in it for its process id, patched there.
"""

import ctypes.util
import tempfile
from functools import lru_cache
from typing import Any

OWN_PID = 0x5EC0_0D1D
_CLONE_THREAD = 0x0001_0000
_AF_UNIX, _SOCK_STREAM, _SOCK_TYPE = 1, 1, 0xF
_EPERM, _ENOSYS = 1, 38
_CTL_OPTIMIZE = 8
_PR_SET_PDEATHSIG = 1
_FCNTL = (5, 6, 7, 8, 10, 15, 36, 37, 38, 1024, 1026)
"""Locks, leases and watches on files that are the machine's, and signals (also SIGKILL) to whom
the program chooses, sent by the kernel: F_*LK*, F_SETOWN, F_SETSIG, F_SETOWN_EX, F_OFD_*,
F_SETLEASE, F_NOTIFY."""
_IOCTL = (0x8901, 0x8902)
"""FIOSETOWN and SIOCSPGRP: the same by another call."""

ALLOWED = """
read write readv writev pread64 pwrite64 preadv preadv2 pwritev pwritev2 open openat openat2 creat
close close_range stat fstat lstat newfstatat statx lseek mmap mprotect munmap brk mremap madvise
mincore msync rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigsuspend
sigaltstack ioctl access faccessat faccessat2 pipe pipe2 select pselect6 poll ppoll epoll_create
epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 eventfd eventfd2 sched_yield dup dup2
dup3 nanosleep clock_nanosleep clock_gettime clock_getres gettimeofday time times getitimer
setitimer alarm pause getpid getppid gettid getuid geteuid getgid getegid getresuid getresgid
getgroups getpgid getpgrp getsid uname fcntl fsync fdatasync truncate ftruncate fallocate fadvise64
getdents getdents64 getcwd chdir fchdir rename renameat renameat2 mkdir mkdirat rmdir link linkat
unlink unlinkat symlink symlinkat readlink readlinkat umask getrlimit getrusage sysinfo futex
set_robust_list get_robust_list set_tid_address rseq arch_prctl prctl sched_getaffinity
sched_getparam sched_getscheduler sched_get_priority_max sched_get_priority_min getpriority exit
exit_group wait4 waitid getrandom membarrier statfs fstatfs copy_file_range sendfile timerfd_create
timerfd_settime timerfd_gettime timer_create timer_settime timer_gettime timer_delete
timer_getoverrun restart_syscall getcpu sendto recvfrom sendmsg recvmsg shutdown getsockopt
setsockopt getsockname getpeername
""".split()


SERVER_ONLY = ("clone", "kill", "tgkill", "prlimit64", "pidfd_open")
CHMOD = ("chmod", "fchmod", "fchmodat", "fchmodat2")
"""Of no program: Landlock does not keep it from files of its own user, nor a mount from devices."""


def missing() -> str:
    """Why no filter can be made here; empty when one can."""
    if ctypes.util.find_library("seccomp") is None:
        return "libseccomp is not installed (Debian: apt-get install libseccomp2)"
    try:
        import pyseccomp  # noqa: F401
    except (ImportError, OSError, RuntimeError) as error:
        return f"pyseccomp does not load: {error}"
    return ""


@lru_cache(maxsize=2)
def programs(in_bubblewrap: bool) -> tuple[bytes, bytes]:
    """BPF code of the two filters: of the whole guest, and on top of it of a program.

    The long list is loaded once, when the guest starts; what only the fork server may do
    (fork, kill, limit others) is taken away by the short one in each program's process.
    """
    import pyseccomp as sc

    guest = sc.SyscallFilter(defaction=sc.ERRNO(_EPERM))
    guest.set_attr(_CTL_OPTIMIZE, 2)
    for name in (*ALLOWED, *SERVER_ONLY, *(CHMOD if in_bubblewrap else ())):
        if _known(sc, name):
            guest.add_rule(sc.ALLOW, name)
    guest.add_rule(sc.ERRNO(_ENOSYS), "clone3")  # glibc then falls back to clone
    # asyncio wakes itself by such a pair; datagram sockets could send to any address.
    stream = sc.Arg(1, sc.MASKED_EQ, _SOCK_TYPE, _SOCK_STREAM)
    guest.add_rule(sc.ALLOW, "socketpair", sc.Arg(0, sc.EQ, _AF_UNIX), stream)

    program = sc.SyscallFilter(defaction=sc.ALLOW)
    program.add_rule(sc.ERRNO(_EPERM), "clone", sc.Arg(0, sc.MASKED_EQ, _CLONE_THREAD, 0))
    for name in ("kill", "tgkill"):
        program.add_rule(sc.ERRNO(_EPERM), name, sc.Arg(0, sc.NE, OWN_PID))
    program.add_rule(sc.ERRNO(_EPERM), "prlimit64", sc.Arg(0, sc.NE, 0))
    for name in ("pidfd_open", *CHMOD):
        if _known(sc, name):
            program.add_rule(sc.ERRNO(_EPERM), name)
    for command in _FCNTL:
        program.add_rule(sc.ERRNO(_EPERM), "fcntl", sc.Arg(1, sc.EQ, command))
    for request in _IOCTL:
        program.add_rule(sc.ERRNO(_EPERM), "ioctl", sc.Arg(1, sc.MASKED_EQ, 0xFFFF_FFFF, request))
    program.add_rule(sc.ERRNO(_EPERM), "prctl", sc.Arg(0, sc.EQ, _PR_SET_PDEATHSIG))
    return _bytes(guest), _bytes(program)


def _bytes(rules: Any) -> bytes:
    with tempfile.TemporaryFile() as file:
        rules.export_bpf(file)
        file.seek(0)
        return file.read()


def _known(sc: object, name: str) -> bool:
    """False for calls that this machine or this libseccomp does not have."""
    return bool(sc.resolve_syscall(sc.system_arch(), name) >= 0)  # type: ignore[attr-defined]
