"""The config as a form: every field described, unknown keys refused, nothing to change later."""

import pytest
from pydantic import ValidationError

from tasks.collect.config import CollectConfig, FileSource


def test_every_field_of_the_form_is_described():
    schema = CollectConfig.model_json_schema()
    for model in (schema, *schema["$defs"].values()):
        for name, field in model["properties"].items():
            assert field.get("description"), name
            assert "null" not in str(field.get("anyOf", ""))


def test_sources_are_told_apart_by_kind():
    config = CollectConfig.model_validate({"sources": [{"kind": "file", "uri": "a.jsonl"}]})
    assert config.sources == [FileSource(uri="a.jsonl")]


@pytest.mark.parametrize(
    "sources",
    [
        [],
        [{"kind": "file"}],
        [{"kind": "csv", "uri": "a"}],
        [{"kind": "file", "uri": "a.jsonl", "limt": 3}],
        [{"kind": "maker", "task_type": "reverse_text", "size": 0}],
    ],
)
def test_bad_sources_are_refused(sources):
    with pytest.raises(ValidationError):
        CollectConfig.model_validate({"sources": sources})
