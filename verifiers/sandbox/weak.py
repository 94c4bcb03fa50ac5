"""The sandbox of machines without namespaces: Landlock, system call filter, resource limits.

Weaker than bubblewrap: the scratch directory lies on the machine's disk and has no limit in
total; without root all programs share the worker's user id and threads have no limit but
memory. It is used only where the owner of the
machine sets the environment variable `TRACEMILL_ALLOW_WEAK_SANDBOX` to 1 for the worker.
"""

import os
import shutil
import tempfile
from pathlib import Path

from verifiers.sandbox import profile

VARIABLE = "TRACEMILL_ALLOW_WEAK_SANDBOX"


def allowed() -> bool:
    """Whether the owner of this machine accepts the weak sandbox."""
    return os.environ.get(VARIABLE) == "1"


class Scratch:
    """The directories of one weak sandbox: `tmp` for the program, `packages` with links."""

    def __init__(self, mounts: profile.Mounts, uid: int):
        self.root = Path(tempfile.mkdtemp(prefix="tracemill-weak-"))
        self.root.chmod(0o711)
        self.tmp, self.packages = self.root / "tmp", self.root / "packages"
        self.tmp.mkdir()
        self.packages.mkdir()
        if uid >= 0:
            os.chown(self.tmp, uid, uid)
        self._mounts = mounts
        for source, path in mounts:
            if path.startswith(f"{profile.PACKAGES}/"):
                (self.packages / Path(path).name).symlink_to(source)

    def rules(self) -> list[list[str]]:
        """Landlock rules: what bubblewrap would mount, and the scratch directory."""
        rules = [[str(self.tmp), "write"], [str(self.packages), "list"]]
        rules += [[f"/dev/{node}", "device"] for node in profile.DEVICES]
        stdlib = profile.stdlib_paths()
        for source, _ in (*profile.system_mounts(), *self._mounts, (str(profile.GUEST), "")):
            if source in stdlib:
                rules.append([source, "list"])
                for entry in os.scandir(source):
                    if entry.name not in profile.HIDDEN:
                        rules.append([entry.path, "read"])
            elif os.path.exists(source):
                rules.append([source, "read"])
        return rules

    def environment(self) -> dict[str, str]:
        """Variables of the guest."""
        tmp = str(self.tmp)
        return profile.ENVIRONMENT | {
            "HOME": tmp,
            "TMPDIR": tmp,
            "PYTHONPATH": str(profile.GUEST.parent),
        }

    def remove(self) -> None:
        """Delete everything."""
        shutil.rmtree(self.root, ignore_errors=True)
