"""The system call filter of a program under test: a list of what is allowed.

Threads may be started, processes may not; sockets do not exist; signals reach only the
program itself. The filter is compiled outside and loaded by the guest right before the
program runs; OWN_PID stands in it for the program's process id and is patched there.
"""

import ctypes.util
import tempfile
from functools import lru_cache

OWN_PID = 0x5EC0_0D1D
_CLONE_THREAD = 0x0001_0000
_AF_UNIX = 1
_EPERM, _ENOSYS = 1, 38
_CTL_OPTIMIZE = 8

ALLOWED = """
read write readv writev pread64 pwrite64 preadv preadv2 pwritev pwritev2 open openat openat2 creat
close close_range stat fstat lstat newfstatat statx lseek mmap mprotect munmap brk mremap madvise
mincore msync rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigsuspend
sigaltstack ioctl access faccessat faccessat2 pipe pipe2 select pselect6 poll ppoll epoll_create
epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 eventfd eventfd2 sched_yield dup dup2
dup3 nanosleep clock_nanosleep clock_gettime clock_getres gettimeofday time times getitimer
setitimer alarm pause getpid getppid gettid getuid geteuid getgid getegid getresuid getresgid
getgroups getpgid getpgrp getsid uname fcntl flock fsync fdatasync truncate ftruncate fallocate
fadvise64 getdents getdents64 getcwd chdir fchdir rename renameat renameat2 mkdir mkdirat rmdir
link linkat unlink unlinkat symlink symlinkat readlink readlinkat chmod fchmod fchmodat fchmodat2
umask utime utimes utimensat futimesat getrlimit getrusage sysinfo futex set_robust_list
get_robust_list set_tid_address rseq arch_prctl prctl sched_getaffinity sched_getparam
sched_getscheduler sched_get_priority_max sched_get_priority_min getpriority exit exit_group
wait4 waitid getrandom membarrier statfs fstatfs copy_file_range sendfile timerfd_create
timerfd_settime timerfd_gettime timer_create timer_settime timer_gettime timer_delete
timer_getoverrun restart_syscall getcpu sendto recvfrom sendmsg recvmsg shutdown getsockopt
setsockopt getsockname getpeername
""".split()


def missing() -> str:
    """Why no filter can be made here; empty when one can."""
    if ctypes.util.find_library("seccomp") is None:
        return "libseccomp is not installed (Debian: apt-get install libseccomp2)"
    try:
        import pyseccomp  # noqa: F401
    except (ImportError, OSError, RuntimeError) as error:
        return f"pyseccomp does not load: {error}"
    return ""


@lru_cache(maxsize=1)
def program() -> bytes:
    """The filter as BPF code."""
    import pyseccomp as sc

    rules = sc.SyscallFilter(defaction=sc.ERRNO(_EPERM))
    rules.set_attr(_CTL_OPTIMIZE, 2)
    for name in ALLOWED:
        if _known(sc, name):
            rules.add_rule(sc.ALLOW, name)
    rules.add_rule(sc.ERRNO(_ENOSYS), "clone3")  # glibc then falls back to clone
    thread = sc.Arg(0, sc.MASKED_EQ, _CLONE_THREAD, _CLONE_THREAD)
    rules.add_rule(sc.ALLOW, "clone", thread)
    rules.add_rule(sc.ALLOW, "socketpair", sc.Arg(0, sc.EQ, _AF_UNIX))  # asyncio wakes itself
    for name in ("kill", "tgkill"):
        rules.add_rule(sc.ALLOW, name, sc.Arg(0, sc.EQ, OWN_PID))
    for own in (0, OWN_PID):
        rules.add_rule(sc.ALLOW, "prlimit64", sc.Arg(0, sc.EQ, own))
    with tempfile.TemporaryFile() as file:
        rules.export_bpf(file)
        file.seek(0)
        return file.read()


def _known(sc: object, name: str) -> bool:
    """False for calls that this machine or this libseccomp does not have."""
    return bool(sc.resolve_syscall(sc.system_arch(), name) >= 0)  # type: ignore[attr-defined]
