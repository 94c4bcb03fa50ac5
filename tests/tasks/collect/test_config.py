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


@pytest.mark.parametrize(
    "uri",
    [
        "s3://hunter:sesame@bucket/rows.jsonl",
        "https://sesame@host/rows.jsonl",
        "https://a@b:sesame@host/rows.jsonl",
        "simplecache::https://hunter:sesame@host/rows.parquet",
        "https://host/rows.jsonl?X-Amz-Signature=sesame&x=.jsonl",
        "https://host/get?sig=sesame\n&name=rows.jsonl",
    ],
)
def test_secrets_in_a_uri_are_refused_and_not_shown(uri):
    with pytest.raises(ValidationError, match="credentials in the environment") as caught:
        CollectConfig.model_validate({"sources": [{"kind": "file", "uri": uri}]})
    assert "sesame" not in str(caught.value)
    assert "sesame" not in repr(caught.value.errors())


@pytest.mark.parametrize(
    "uri",
    ["a@b/what?.jsonl", "s3://bucket/user@2/rows.jsonl", "simplecache::https://host:80/r.parquet"],
)
def test_plain_uris_stay_as_they_are(uri):
    assert FileSource(uri=uri).uri == uri


@pytest.mark.parametrize(
    ("source", "bound"),
    [
        ({"kind": "maker", "task_type": "reverse_text", "size": 10**12}, "1000000"),
        ({"kind": "reasoning_gym", "generator": "chain_sum", "size": 1_000_001}, "1000000"),
        ({"kind": "file", "uri": "a.jsonl", "limit": 10**20}, "100000000"),
        ({"kind": "dataset", "path": "a", "limit": 10**20}, "100000000"),
        ({"kind": "humaneval", "limit": 10**20}, "100000000"),
    ],
)
def test_huge_numbers_are_refused(source, bound):
    with pytest.raises(ValidationError, match=f"less than or equal to {bound}\\b"):
        CollectConfig.model_validate({"sources": [source]})
