"""Weight broadcast: versions published by one process, fetched whole and verified by many."""

from infra.broadcast.client import BroadcastClient, Version
from infra.broadcast.origin import Origin

__all__ = ["BroadcastClient", "Origin", "Version"]
