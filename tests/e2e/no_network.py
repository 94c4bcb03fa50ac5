"""Run a command with loopback as its only network: `python no_network.py COMMAND ...`.

Where the kernel refuses a network namespace, the command runs as it is and stderr says so.
"""

import ctypes
import fcntl
import os
import socket
import struct
import sys

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 0x1


def enter() -> bool:
    libc = ctypes.CDLL(None, use_errno=True)
    flags = CLONE_NEWNET if os.geteuid() == 0 else CLONE_NEWUSER | CLONE_NEWNET
    if libc.unshare(flags) != 0:
        return False
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16sh", b"lo", 0)
        (up,) = struct.unpack("16xh", fcntl.ioctl(sock, SIOCGIFFLAGS, request)[:18])
        fcntl.ioctl(sock, SIOCSIFFLAGS, struct.pack("16sh", b"lo", up | IFF_UP))
    return True


if __name__ == "__main__":
    if not enter():
        print("no network namespace here: the network stays", file=sys.stderr)
    os.execvp(sys.argv[1], sys.argv[1:])
