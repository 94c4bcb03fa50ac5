"""No parameter of a run reaches the sandbox: only the worker's environment does."""

import json

import pytest
from pydantic import BaseModel

from flows.config import RunConfig
from flows.profiles import load_profile
from tasks.verify.config import VerifyConfig
from verifiers.sandbox import weak

WEAKENING = (
    "sandbox", "weak", "unsafe", "trust", "isolat", "seccomp", "namespace", "bwrap", "env",
    "limit_cpu", "memory_limit", "time_limit", "network",
)  # fmt: skip


def names(model: type[BaseModel], path: str = "") -> list[str]:
    """All paths of fields of a config, also inside lists."""
    found = []
    for name, field in model.model_fields.items():
        found.append(f"{path}{name}")
        for kind in _models(field.annotation):
            found += names(kind, f"{path}{name}.")
    return found


def _models(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [kind for part in getattr(annotation, "__args__", ()) for kind in _models(part)]


def test_no_field_of_a_run_speaks_of_the_sandbox():
    found = names(RunConfig)
    assert "verify.batch_rows" in found and "collect.sources" in found
    assert not [name for name in found if any(word in name.lower() for word in WEAKENING)]


def test_the_fields_of_verify_are_resources():
    assert set(VerifyConfig.model_fields) == {"scheduler", "workers", "batch_rows"}


@pytest.mark.parametrize(
    "setting",
    [
        "verify.sandbox=off",
        "verify.weak_sandbox=true",
        f"verify.{weak.VARIABLE}=1",
        f"verify.env.{weak.VARIABLE}=1",
        "verify.memory_bytes=1",
        "verify.limits.cpu_seconds=999",
        f"{weak.VARIABLE}=1",
        "sandbox=off",
    ],
)
def test_set_is_refused(setting, monkeypatch):
    monkeypatch.delenv(weak.VARIABLE, raising=False)
    with pytest.raises(Exception, match=r"(?i)unknown|extra|not permitted|no such|no key"):
        load_profile("local", [setting])
    assert not weak.allowed()


def test_the_resolved_config_holds_no_switch_either():
    text = json.dumps(load_profile("local", []).model_dump(mode="json"))
    assert weak.VARIABLE not in text and "sandbox" not in text.lower()
