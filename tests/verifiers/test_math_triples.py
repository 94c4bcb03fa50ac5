"""The labelled triples of math-verify's own tests, boxed: no false positive, at least its accuracy.

The sdist is downloaded with its hash pinned and read as data (`ast.literal_eval`), never imported.
Its golds and answers are whole texts; `boxed_part` takes the answer out of both in the same way
(boxes joined by "and" or commas, else the last formula, else the last number), because our rule
is that only a box counts.
"""

import ast
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from verifiers.registry import judge_row

REQUIREMENT = (
    "math-verify==0.9.0 "
    "--hash=sha256:45ac6c61344ba056b9e99a660a4bc8d044ed408f730aed68c60435aa5eec4645\n"
)
TRIPLES = 253
PEER_RIGHT = 237
"""Rows outside of CONTRADICTIONS that math-verify 0.9.0 gets right from the same boxes."""

Triple = tuple[str, str, int]

CONTRADICTIONS: dict[tuple[str, str], str] = {
    ("9", "Answer $ \n 9 \n $"): "labels where a formula may break its line; the box holds 9",
    ("9", "Answer \\( \n 9 \n \\)"): "labels where a formula may break its line; the box holds 9",
    (r"1 - \frac{1}{\mathrm{e}}", r"$1 + \frac{1}{\mathrm{e}}$"): "1 - 1/e is not 1 + 1/e",
    ("10/9", r"Answer $ \frac{1}{2} \$ = \frac{10}{9} $"): "1/2 is not 10/9",
    ("x = 11", "$x = 5+5+1 = 7 =11$"): "7 is not 11",
    ("x = 1/3", r"$x = 5+5+1 = 1/3 \approx 11$"): "11 is not 1/3",
    ("z = 1 + 1 = 2", "$z = 3+3 = 2$"): "3+3 is not 2",
    (r"1 = \zzz = x = 0", "$0$"): "a truth that no reader understands, and 1 is not 0",
}
"""(boxed gold, answer): why exact equality of the whole text decides against the label."""

_BOX = re.compile(r"\\boxed\s*\{")
_FORMULA = re.compile(r"\$\$(.+?)\$\$|\$(.+?)(?<!\\)\$|\\\[(.+?)\\\]|\\\((.+?)\\\)", re.DOTALL)
_NUMBER = re.compile(r"[-+]?(?:\d[\d.,]*|\.\d+)(?:/\d+)?(?:\s*(?:%|percentage|percent|pct))?")
_FINAL = re.compile(r"Final Answer:(.*?)(?:I hope it is correct|$)", re.DOTALL)
_BETWEEN = re.compile(r"(?:[\s,.;$]|\\[()\[\],]|\\quad|\}|\bor\b)*|[^.]{0,40}\band\b[^.]{0,40}")
_PERCENT = re.compile(r"\$?\s*(%|percentage|percent|pct)")

Part = tuple[int, int, str]


def boxes(text: str) -> list[Part]:
    """(start, end, content) of the boxes; one that is never closed reaches to the end."""
    found: list[Part] = []
    at = 0
    while match := _BOX.search(text, at):
        depth, i = 1, match.end()
        while i < len(text) and depth:
            if text[i] == "\\":
                i += 1
            else:
                depth += (text[i] == "{") - (text[i] == "}")
            i += 1
        found.append((match.start(), i, text[match.end() : i - (depth == 0)]))
        at = i
    return found


def boxed_part(text: str) -> str:
    """The answer in a gold or in a model's text, the same way for both."""
    text = text.rsplit("</think>", 1)[-1]
    text = re.sub(r"\\\\(?=[A-Za-z])", r"\\", text)  # some of the literals are escaped twice
    if final := _FINAL.findall(text):
        text = final[-1]
    text = text.split("I hope it is correct")[0].strip()
    parts = boxes(text)
    if not parts:
        parts = [
            (match.start(), match.end(), next(g for g in match.groups() if g is not None))
            for match in _FORMULA.finditer(text)
        ]
        if re.search(r"[A-Za-z]{2,} |:", re.sub(r"\\[A-Za-z]+", "", text)):  # prose
            end = parts[-1][1] if parts else 0
            parts += [
                (end + match.start(), end + match.end(), match[0].rstrip(".,"))
                for match in _NUMBER.finditer(text[end:])
            ]
    if not parts:
        return text.strip("$€ ").removesuffix("m²")
    group = [parts[-1]]
    for part in reversed(parts[:-1]):
        if not _BETWEEN.fullmatch(text[part[1] : group[0][0]]):
            break
        group.insert(0, part)
    percent = _PERCENT.match(text[group[-1][1] :])
    return ", ".join(part[2].strip() for part in group) + (f" {percent[1]}" if percent else "")


def read_triples(source: str) -> list[Triple]:
    """The literal (gold, answer, label) rows of the parametrized tests in a source text."""
    found: list[Triple] = []
    for call in ast.walk(ast.parse(source)):
        if not isinstance(call, ast.Call) or not ast.unparse(call.func).endswith("parametrize"):
            continue
        for row in call.args[1].elts if isinstance(call.args[1], ast.List) else ():
            try:
                value = ast.literal_eval(row)
            except ValueError:
                continue
            if isinstance(value, tuple) and [type(v) for v in value] == [str, str, int]:
                found.append(value)
    return found


@pytest.fixture(scope="session")
def triples(tmp_path_factory) -> list[Triple]:
    folder = tmp_path_factory.mktemp("sdist")
    (folder / "requirements.txt").write_text(REQUIREMENT)
    command = [
        *(
            sys.executable,
            "-P",
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--require-hashes",
        ),
        *("--no-binary", ":all:", "--no-build-isolation", "--retries", "0", "--timeout", "10"),
        *("--dest", str(folder), "-r", "requirements.txt"),
    ]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        pytest.skip("no package index within 60 s")
    if done.returncode:
        pytest.skip(f"the sdist of math-verify cannot be had: {done.stderr.strip()[-200:]}")
    found: list[Triple] = []
    with tarfile.open(next(Path(folder).glob("*.tar.gz"))) as archive:
        for name in sorted(archive.getnames()):
            if re.search(r"/tests/test_\w+\.py$", name):
                member = archive.extractfile(name)
                assert member is not None
                found += read_triples(member.read().decode())
    return found


def expected(triples: list[Triple]) -> list[tuple[str, str, int]]:
    """(boxed gold, boxed answer, label) of the rows whose label our rules do not contradict."""
    rows = []
    for gold, answer, label in triples:
        truth = boxed_part(gold)
        if (truth, answer) not in CONTRADICTIONS:
            rows.append((truth, boxed_part(answer), label))
    return rows


def ours(truth: str, answer: str) -> float | None:
    return judge_row("verifiable_math", f"\\boxed{{{answer}}}", {"ground_truth": truth}).score


@pytest.mark.network
def test_triples(triples) -> None:
    assert len(triples) == TRIPLES
    rows = expected(triples)
    assert len(rows) == TRIPLES - 10  # some of the contradictions occur twice
    scored = [(truth, answer, label, ours(truth, answer)) for truth, answer, label in rows]
    assert [row for row in scored if row[3] == 1 and not row[2]] == []
    assert [row for row in scored if row[3] is None] == []
    right = sum(score == label for *_, label, score in scored)
    assert right >= PEER_RIGHT, [row for row in scored if row[2] != row[3]]


@pytest.mark.network
def test_contradicted_labels_are_judged_by_our_rules(triples) -> None:
    rows = {(boxed_part(gold), answer): label for gold, answer, label in triples}
    for (truth, answer), why in CONTRADICTIONS.items():
        assert ours(truth, boxed_part(answer)) != rows[truth, answer], why


@pytest.mark.slow
@pytest.mark.network
def test_the_peer_is_not_more_accurate(triples) -> None:
    from math_verify import parse, verify

    right = {"ours": 0, "peer": 0}
    for truth, answer, label in expected(triples):
        gold, got = (parse(f"\\boxed{{{text}}}") for text in (truth, answer))
        right["peer"] += verify(gold, got) == bool(label)
        right["ours"] += ours(truth, answer) == label
    assert right["peer"] == PEER_RIGHT
    assert right["ours"] >= right["peer"]
