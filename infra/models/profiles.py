"""Calibration profiles by model revision: those of the repository, and those made on this machine.

A profile is found by its file's name, `<model slug>-<revision>.json`, so that one which cannot be
used stops the judging of its own model and of no other. One of this machine comes first: it was
made with the processors that work here. A profile that cannot be read is an error, never ignored:
without it a model would be judged by looser limits.
"""

from functools import lru_cache
from pathlib import Path

from data_contracts.ids import model_slug
from infra.models.cache import cache_root
from infra.models.errors import ProfileUnreadable
from toploc.errors import MalformedProfile
from toploc.profile import Profile, parse

PACKAGED = Path(__file__).parent / "calibration"


def own_profiles() -> Path:
    """Where `tracemill proof calibrate` puts a profile."""
    return cache_root().parent / "calibration"


def file_name(model: str, revision: str) -> str:
    """The name under which the profile of a model revision is found."""
    return f"{model_slug(model)}-{revision}.json"


@lru_cache(maxsize=64)
def find_profile(revision: str) -> Profile | None:
    """The profile of a model revision, if there is one."""
    for directory in (own_profiles(), PACKAGED):
        for path in sorted(directory.glob(f"*-{revision}.json")):
            return _read(path, revision)
    return None


def _read(path: Path, revision: str) -> Profile:
    try:
        profile = parse(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeError, MalformedProfile) as error:
        raise ProfileUnreadable(path, str(error)) from error
    if profile.revision != revision:
        raise ProfileUnreadable(path, f"it is of revision {profile.revision[:64]!r}")
    return profile
