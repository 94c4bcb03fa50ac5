"""prefect.yaml: every deployment loads, and its parameters make a form."""

from pathlib import Path

import pytest
import yaml
from prefect.flows import load_flow_from_entrypoint

ROOT = Path(__file__).resolve().parents[2]
DEPLOYMENTS = yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=lambda d: d["entrypoint"])
def test_the_entrypoint_loads_and_every_parameter_is_described(deployment, monkeypatch):
    monkeypatch.chdir(ROOT)
    flow = load_flow_from_entrypoint(deployment["entrypoint"])
    schema = flow.parameters if hasattr(flow.parameters, "properties") else None
    assert schema is not None
    for name, parameter in schema.properties.items():
        assert parameter.get("description"), f"{flow.name}: parameter {name} has no description"


def test_each_stage_has_a_deployment():
    names = {deployment["entrypoint"].rpartition(":")[2] for deployment in DEPLOYMENTS}
    assert names == {
        "run", "nightly", "collect", "provision", "generate", "validate", "verify", "annotate",
        "publish", "rl_rounds", "serve_node",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("entrypoint", "config"), [("run.py:run", "RunConfig"), ("rl.py:rl_rounds", "RlConfig")]
)
def test_the_form_describes_every_field(entrypoint, config):
    flow = load_flow_from_entrypoint(f"{ROOT / 'flows'}/{entrypoint}")
    definitions = flow.parameters.definitions
    assert config in definitions
    for name, model in definitions.items():
        for field, schema in model.get("properties", {}).items():
            target = definitions.get(schema.get("$ref", "").rpartition("/")[2], schema)
            assert target.get("description"), f"{name}.{field} has no description"
