import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifiers import extract, strict_json
from verifiers.kinds.json_answer import find_object_text
from verifiers.mathlib.errors import TooLarge, Unparsable
from verifiers.mathlib.grammar import parse

MARKUP = st.lists(
    st.one_of(
        st.sampled_from(
            [
                "<think>",
                "</think>",
                "\\boxed{",
                "\\boxed",
                "{",
                "}",
                "\\{",
                "\\",
                "```",
                "```python\n",
                "~~~",
                "\n",
                "<answer>",
                "</answer>",
                '"',
                "[",
                "]",
                ":",
                ",",
                "1",
                "x",
                "^",
                "_",
                "\\frac",
            ]
        ),
        st.text(max_size=5),
    ),
    max_size=40,
).map("".join)


@given(MARKUP)
def test_extraction_never_raises(text) -> None:
    extract.answer_part(text)
    extract.last_boxed(text)
    extract.fenced_blocks(text)
    extract.last_tag(text, "answer")
    try:
        find_object_text(text)
    except strict_json.InvalidJson:
        pass


@given(MARKUP)
def test_math_reader_only_refuses(text) -> None:
    try:
        parse(text)
    except (Unparsable, TooLarge):
        pass


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        ),
    )
)
def test_json_round_trip_is_equal(value) -> None:
    import json

    assert strict_json.deep_equal(strict_json.loads(json.dumps(value)), value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a <think>b</think> c", " c"),
        ("<think>a</think>b</think>c", "c"),
        ("<think>never closed", None),
        ("closed only</think>x", "x"),
        ("plain", "plain"),
    ],
)
def test_answer_part(text, expected) -> None:
    assert extract.answer_part(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\\boxed{1} \\boxed{2}", "2"),
        ("\\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("\\boxed{3} \\boxed{4", "3"),
        ("\\boxed 5", None),
        ("\\boxed{\\{1\\}}", "\\{1\\}"),
        ("\\boxed{\\boxed{7}}", "7"),
        ("\\boxed {8}", "8"),
        ("} \\boxed{9}", "9"),
    ],
)
def test_last_boxed(text, expected) -> None:
    assert extract.last_boxed(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("```python\na\n```\n```text\nb\n```", "a"),
        ("```python\na\n```\n```python\nb\n```", "b"),
        ("```python\na\n```\n```python\nunclosed", "a"),
        ("````python\n```\na\n````", "```\na"),
        ("```Python\na\n```", "a"),
        ("```python3\na\n```", None),
        ("`python`", None),
        ("so: ```python\na\n```", "a"),
    ],
)
def test_python_block(text, expected) -> None:
    assert extract.last_block(text, "python") == expected


def test_last_tag_is_the_last_complete_pair() -> None:
    text = "<answer>1</answer> <answer>2</answer> <answer>3"
    assert extract.last_tag(text, "answer") == "2"
    assert extract.last_tag("</answer><answer>", "answer") is None


@pytest.mark.parametrize(
    "text",
    [
        "```" + "a" * 300_000 + "`",
        "</answer>" * 100_000,
        "<answer>" * 100_000 + "</answer>" * 100_000,
        "\\boxed{" * 60_000,
        "{" * 300_000,
        '"' * 300_000 + "}",
        "\\" * 300_000 + '"}',
    ],
    ids=["fence", "closings", "pairs", "boxes", "braces", "quotes", "backslashes"],
)
def test_extraction_is_linear(text) -> None:
    started = time.process_time()
    extract.fenced_blocks(text)
    extract.last_tag(text, "answer")
    extract.last_boxed(text)
    with pytest.raises(strict_json.InvalidJson):
        find_object_text(text)
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    "text",
    [
        '{"a": NaN}',
        '{"a": Infinity}',
        '{"a": 1, "\\u0061": 2}',
        '{"a": 1,}',
        "{'a': 1}",
        '{"a": "x\ny"}',
        "[" * 100_000,
        '{"a":' * 100_000,
        "1" * 10_000,
        '{"a": 1} x',
        "// c\n{}",
        "",
        "1e9999999999999999999",
    ],
)
def test_strict_json_refuses(text) -> None:
    with pytest.raises(strict_json.InvalidJson):
        strict_json.loads(text)


def test_strict_json_depth_and_numbers() -> None:
    strict_json.loads("[" * 60 + "]" * 60)
    big = 10**300 + 1
    assert not strict_json.deep_equal(strict_json.loads(str(big)), big - 1)
    assert strict_json.deep_equal(strict_json.loads("1e2"), 100)
    assert not strict_json.deep_equal(strict_json.loads("0.1000000000000000000001"), 0.1)
    assert not strict_json.deep_equal(True, 1) and not strict_json.deep_equal([False], [0])
    assert not strict_json.deep_equal({"a": None}, {})
    assert not strict_json.deep_equal("\u00e9", "e\u0301")
