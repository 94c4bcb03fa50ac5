"""What tests of several packages need."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def calibrated_here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Tests, and the processes that they start, find calibration profiles of this processor.

    The packaged ones name one processor, and elsewhere what they refuse is refused softly. These
    have the same limits, and lie in a cache directory that shares the models of the user's.
    """
    from infra.inference.environment import environment
    from infra.models.cache import cache_root
    from infra.models.profiles import PACKAGED, find_profile
    from toploc.profile import FIELDS

    place = FIELDS.index("processor")
    here = environment("engine", "dtype", "attention").split("|")[place]
    cache, models = tmp_path_factory.mktemp("calibrated"), cache_root()
    (cache / "calibration").mkdir()
    for path in PACKAGED.glob("*.json"):
        profile = json.loads(path.read_text())
        seen = [one.split("|") for one in profile["environments"]]
        profile["environments"] = ["|".join([*e[:place], here, *e[place + 1 :]]) for e in seen]
        (cache / "calibration" / path.name).write_text(json.dumps(profile))
    models.mkdir(parents=True, exist_ok=True)
    (cache / "models").symlink_to(models.resolve(), target_is_directory=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRACEMILL_CACHE", str(cache))
        find_profile.cache_clear()
        yield cache
    find_profile.cache_clear()
