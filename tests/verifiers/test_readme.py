"""README.md of the package: its worked example works as it stands, its tables are complete."""

import importlib.util
import re
from pathlib import Path

import pytest

import verifiers
from verifiers import health, registry, result
from verifiers.kinds import code
from verifiers.sandbox import Limits

PACKAGE = Path(verifiers.__file__).parent
README = (PACKAGE / "README.md").read_text()


@pytest.fixture
def anagram(tmp_path, monkeypatch):
    """The example as a module of its own, in the registry's list and nowhere else."""
    (source,) = [
        block
        for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL)
        if "KIND =" in block
    ]
    path = tmp_path / "anagram.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("anagram", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(registry, "KINDS", (*registry.KINDS, module.KIND))
    monkeypatch.setitem(registry._BY_TYPE, "anagram", module.KIND)
    monkeypatch.setattr(health, "_faults", dict(health._faults))
    return module.KIND


def test_the_example_kind_is_complete(anagram):
    assert health.fault(anagram) == ""
    assert "anagram" in verifiers.task_types() and verifiers.is_binary("anagram")
    info = {"source": "dormitory"}
    right = verifiers.score("anagram", "<think>?</think><answer>dirty room</answer>", info)
    assert (right.score, right.status, right.verifier) == (1.0, "ok", "anagram@1")
    assert verifiers.score("anagram", "<answer>dirty rooms</answer>", info).score == 0
    assert verifiers.score("anagram", "dirty room", info).status == "no_answer"
    assert verifiers.score("anagram", "<answer>x</answer>", {"source": ""}).score is None


@pytest.mark.parametrize("name", verifiers.task_types())
def test_every_task_type_stands_in_the_table(name):
    assert f"`{name}`" in README


@pytest.mark.parametrize("status", [*result.JUDGED, *result.UNSCORED])
def test_every_status_stands_in_the_table(status):
    assert re.search(rf"^\| `{status}` \|", README, re.MULTILINE)


def test_every_environment_variable_is_explained():
    sources = "".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    for variable in set(re.findall(r"TRACEMILL_[A-Z_]+", sources)):
        assert f"`{variable}`" in README, variable


def test_the_limits_are_those_of_the_code():
    limits = Limits()
    row = (
        f"{limits.cpu_seconds} s of CPU, {limits.wall_seconds:g} s of wall time, "
        f"{limits.memory_bytes >> 30} GiB, {limits.threads} threads"
    )
    assert row in README
    assert (
        f"{code.MAX_TESTS:,} tests; {code.CPU_BUDGET:g} s of CPU, {code.WALL_BUDGET:g} s" in README
    )
