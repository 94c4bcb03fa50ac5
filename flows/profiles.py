"""Profiles: TOML files of `configs/`, changed by `--set a.b=value`.

A profile is of a run (RunConfig) or, where it has a section `rounds`, of RL rounds (RlConfig).
Invariants: the result is a valid config or a BadConfig that names the key, what it got, what is
allowed and the nearest known name; a profile file holds no secrets.
"""

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from flows.config import RunConfig
from flows.errors import BadConfig, nearest
from infra.storage.remote import redact

CONFIG_DIR = Path(__file__).resolve().parent.parent / "configs"

Config = TypeVar("Config", bound=BaseModel)


def profile_names(model: type[BaseModel] = RunConfig) -> list[str]:
    """Names of the committed profiles of a kind of config."""
    return sorted(
        path.stem
        for path in CONFIG_DIR.glob("*.toml")
        if ("rounds" in tomllib.loads(path.read_text("utf-8"))) == ("rounds" in model.model_fields)
    )


def load_profile(name: str, overrides: Sequence[str] = ()) -> RunConfig:
    """The config of a run's profile; see `load_config`."""
    return load_config(RunConfig, name, overrides)


def load_config(model: type[Config], name: str, overrides: Sequence[str] = ()) -> Config:
    """The config of a profile (a name, or a path that ends in .toml) with `key=value` overrides."""
    path = Path(name) if name.endswith(".toml") else CONFIG_DIR / f"{name}.toml"
    if not path.is_file():
        hint = nearest(name, profile_names(model))
        raise BadConfig(f"profile {name!r} does not exist ({path}); {hint}")
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadConfig(f"profile {path} is not valid TOML: {error}") from error
    for override in overrides:
        apply_override(values, override)
    return parse_values(model, values, str(path))


def apply_override(values: dict[str, Any], override: str) -> None:
    """Set one value in place: `a.b=3`, `a.list.0.c="x"`. The value is TOML, else plain text."""
    key, equals, text = override.partition("=")
    parts = key.strip().split(".")
    if not equals or not all(parts):
        raise BadConfig(
            f"--set {override!r} is not of the form a.b=value, for example --set seed=1"
        )
    target: Any = values
    for depth, part in enumerate(parts[:-1]):
        if isinstance(target, list):
            target = target[_index(target, part, parts[:depth])]
        else:
            target = target.setdefault(part, {})
        if not isinstance(target, dict | list):
            where = ".".join(parts[: depth + 1])
            raise BadConfig(f"--set {override!r}: {where} is a value, it has no keys below it")
    value = _value(text.strip())
    if isinstance(target, list):
        target[_index(target, parts[-1], parts[:-1])] = value
    else:
        target[parts[-1]] = value


def parse_config(values: dict[str, Any], origin: str) -> RunConfig:
    """A RunConfig out of plain values; see `parse_values`."""
    return parse_values(RunConfig, values, origin)


def parse_values(model: type[Config], values: dict[str, Any], origin: str) -> Config:
    """A config out of plain values, or BadConfig with one line for each problem."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        lines = [_problem(model, item) for item in error.errors(include_url=False)]
        raise BadConfig(f"config {origin}:\n  " + "\n  ".join(lines)) from error


def _problem(model: type[BaseModel], item: Any) -> str:
    location = [str(part) for part in item["loc"]]
    key = ".".join(location)
    if item["type"] == "extra_forbidden":
        return f"{key}: unknown key; {nearest(location[-1], known_keys(location[:-1], model))}"
    received = json.dumps(item["input"], default=str)
    shown = "" if item["type"] == "missing" else f" (received {redact(received)[:200]})"
    return f"{key or 'config'}: {item['msg']}{shown}"


def known_keys(location: Sequence[str], model: type[BaseModel] = RunConfig) -> list[str]:
    """Keys that a config model has at a location of a validation error."""
    models: list[type[BaseModel]] = [model]
    for part in location:
        models = [
            nested
            for model in models
            for name, info in model.model_fields.items()
            if part in (name, info.alias)
            for nested in _models_in(info.annotation)
        ] or _tagged(models, part)
    return [info.alias or name for model in models for name, info in model.model_fields.items()]


def _tagged(models: list[type[BaseModel]], part: str) -> list[type[BaseModel]]:
    """List positions stay with all models; a union's tag picks the model of that kind."""
    picked = [
        m for m in models if "kind" in m.model_fields and m.model_fields["kind"].default == part
    ]
    return picked or models


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for arg in getattr(annotation, "__args__", ()) for model in _models_in(arg)]


def _index(values: list[Any], part: str, above: Sequence[str]) -> int:
    if part.isascii() and part.isdecimal() and int(part) < len(values):
        return int(part)
    raise BadConfig(
        f"--set: {'.'.join(above)} is a list of {len(values)}; "
        f"{part!r} is not one of its positions 0 to {len(values) - 1}"
    )


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
