"""A user id of its own for each sandbox that root starts.

The limit on threads counts per user id, so no two live sandboxes share one. A slot is held
by an abstract socket name: the kernel frees it when its holder ends, however it ends.
"""

import itertools
import secrets
import socket

from verifiers.errors import SandboxUnavailable

FIRST_UID = 61_440
COUNT = 3_000


class Slot:
    """A leased user id."""

    def __init__(self, uid: int, holder: socket.socket):
        self.uid = uid
        self._holder = holder

    def release(self) -> None:
        """Free the id; the processes under it must be gone."""
        self._holder.close()


def lease() -> Slot:
    """A user id that no other sandbox on this machine has."""
    start = secrets.randbelow(COUNT)  # containers that share user ids do not see each other's names
    for offset in itertools.chain(range(start, COUNT), range(start)):
        holder = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            holder.bind(f"\0tracemill-sandbox-uid-{FIRST_UID + offset}")
        except OSError:
            holder.close()
            continue
        return Slot(FIRST_UID + offset, holder)
    raise SandboxUnavailable(f"all {COUNT} user ids for sandboxes are taken")
