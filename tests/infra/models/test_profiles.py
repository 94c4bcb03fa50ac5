"""Calibration profiles: the packaged ones fit their models, one of this machine comes first."""

from dataclasses import replace
from pathlib import Path

import pytest

from infra.models import profiles, registry
from infra.models.errors import ModelFilesMissing, ProfileUnreadable
from toploc.profile import parse


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    profiles.find_profile.cache_clear()
    directory = tmp_path / "calibration"
    directory.mkdir()
    monkeypatch.setattr(profiles, "own_profiles", lambda: directory)
    yield directory
    profiles.find_profile.cache_clear()


@pytest.mark.parametrize("path", sorted(profiles.PACKAGED.glob("*.json")), ids=lambda p: p.stem)
def test_a_packaged_profile_is_that_of_an_embedded_model(path: Path) -> None:
    model = parse(path.read_text()).model
    assert model in registry.known()
    try:
        revision = registry.revision(model)
    except ModelFilesMissing as error:
        pytest.skip(str(error))
    found = profiles.find_profile(revision)
    assert found is not None and found.model == model
    dtypes = {environment.split("|")[2] for environment in found.environments}
    assert dtypes == {"float32", "bfloat16"}
    assert found.held_out.refused <= 0.02 * found.held_out.traces


def test_an_unknown_revision_has_none() -> None:
    assert profiles.find_profile("0" * 32) is None


def test_a_profile_of_this_machine_comes_first(own: Path) -> None:
    revision = registry.revision("tracemill/nano-s")
    packaged = profiles.find_profile(revision)
    assert packaged is not None
    name = profiles.file_name("tracemill/nano-s", revision)
    (own / name).write_text(replace(packaged, rate=0.25).to_json())
    profiles.find_profile.cache_clear()
    mine = profiles.find_profile(revision)
    assert mine is not None and mine.rate == 0.25


@pytest.mark.parametrize("text", ["{}", "", "\x00", "[" * 2000])
def test_a_profile_that_cannot_be_read_is_an_error_of_its_own_model(own: Path, text: str) -> None:
    revision = registry.revision("tracemill/nano-s")
    name = profiles.file_name("tracemill/nano-s", revision)
    (own / name).write_text(text)
    with pytest.raises(ProfileUnreadable, match=f"{name}.*calibrate"):
        profiles.find_profile(revision)
    assert profiles.find_profile(registry.revision("tracemill/nano-m")) is not None
    assert profiles.find_profile("0" * 32) is None


def test_a_profile_under_the_name_of_another_revision_is_an_error(own: Path) -> None:
    revision = registry.revision("tracemill/nano-s")
    packaged = profiles.find_profile(revision)
    assert packaged is not None
    (own / profiles.file_name("m", "0" * 32)).write_text(packaged.to_json())
    with pytest.raises(ProfileUnreadable, match=revision):
        profiles.find_profile("0" * 32)
