"""Ids are the same everywhere and for ever."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from samples import SAMPLING

from data_contracts import ids
from data_contracts.errors import BadValue

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


def test_published_values_never_change() -> None:
    assert ids.canonical_json({"b": [1, 2.5, None], "a": "é"}) == '{"a":"é","b":[1,2.5,null]}'
    assert ids.canonical_json(2**70) == "1180591620717411303424"
    assert ids.content_id({}) == "44136fa355b3678a1146ad16f7e8649e"
    assert ids.trace_seed("0" * 32) == GOLDEN_SEED
    assert ids.task_id("t", [{"role": "user", "content": "x"}], {"k": 1}) == GOLDEN_TASK
    assert make_trace_id() == GOLDEN_TRACE
    assert ids.shard_id(model="m", trace_ids=["a", "b"], batch_plan=[0, 0]) == GOLDEN_SHARD
    assert ids.model_slug("a/b") == "a--b"


GOLDEN_SEED = 2063415741583242610
GOLDEN_TASK = "c869557cae551d571b805388e49dd4f8"
GOLDEN_TRACE = "7f364ba157918ae15e0babda651a315b"
GOLDEN_SHARD = "1fabaf58fc4036add0ff7f64b0ba7261"


def make_trace_id(**changes: object) -> str:
    sampling = SAMPLING | changes
    return ids.trace_id(
        task_id="0" * 32,
        model="m",
        model_revision="r",
        sampling=sampling,
        run_seed=1,
        sample_index=0,
    )


@given(JSON)
def test_canonical_json_round_trips_and_is_stable(value: object) -> None:
    import json

    text = ids.canonical_json(value)
    assert ids.canonical_json(json.loads(text)) == text


def test_order_of_keys_does_not_matter() -> None:
    assert ids.content_id({"a": 1, "b": 2}) == ids.content_id({"b": 2, "a": 1})


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, {"a": -math.inf}, "\ud83d", {1: "a"}, {"a": {None: 1}}, object()]
)
def test_what_has_no_canonical_json_is_refused(value: object) -> None:
    with pytest.raises(BadValue):
        ids.canonical_json(value)


def test_seeds_fit_int64_and_differ() -> None:
    seeds = {ids.trace_seed(ids.content_id(i)) for i in range(500)}
    assert len(seeds) == 500
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_number_types_in_sampling_do_not_change_the_id() -> None:
    assert make_trace_id(temperature=1) == make_trace_id(temperature=1.0)
    assert make_trace_id(stop=("a",)) == make_trace_id(stop=["a"])
    assert make_trace_id(top_k=5) != make_trace_id(top_k=6)


def test_sampling_keys_are_named() -> None:
    with pytest.raises(BadValue, match="unknown \\['best_of'\\]"):
        make_trace_id(best_of=2)
    with pytest.raises(BadValue, match="missing \\['stop'\\]"):
        ids.normal_sampling({k: v for k, v in SAMPLING.items() if k != "stop"})
