"""Answers that are nearly right, made from a task's row alone, with the scores that the rules give.

The expected scores are worked out here from the text of the rules, not by the code under test.
"""

import ast
import copy
import difflib
import json
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

Miss = tuple[str, str, float]  # what is wrong, completion, score
Row = dict[str, Any]


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all values within an object, containers and leaves."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        yield (*path, key)
        if isinstance(item, dict | list):
            yield from _paths(item, (*path, key))


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def _with(value: Any, path: tuple[Any, ...], change: Callable[[Any, Any], None]) -> Any:
    """A copy in which the container at the end of the path has been changed."""
    fresh = copy.deepcopy(value)
    change(_at(fresh, path[:-1]), path[-1])
    return fresh


def _other(value: Any) -> Any:
    """A value of the same type that differs as little as can be."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if isinstance(value, str):
        return value + "."
    if isinstance(value, list):
        return [*value, 0]
    return {**value, "qz": 0} if isinstance(value, dict) else 0


def _set(container: Any, key: Any, value: Any) -> None:
    container[key] = value


def _reversed_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _reversed_keys(value[key]) for key in reversed(value)}
    return list(map(_reversed_keys, value)) if isinstance(value, list) else value


def _json_misses(truth: Any) -> Iterator[tuple[str, Any, float]]:
    yield "keys in another order", _reversed_keys(truth), 1.0
    for path in _paths(truth):
        where = "/".join(map(str, path))
        yield f"{where} differs", _with(truth, path, lambda c, k: _set(c, k, _other(c[k]))), 0.0
        yield f"{where} missing", _with(truth, path, lambda c, k: c.pop(k)), 0.0
        items = _at(truth, path)
        if isinstance(items, list) and len(items) > 1 and items[0] != items[-1]:
            swapped = [items[-1], *items[1:-1], items[0]]
            yield f"{where} swapped", _with(truth, path, lambda c, k, s=swapped: _set(c, k, s)), 0.0
        if isinstance(items, dict):
            yield f"{where} has more", _with(truth, path, lambda c, k: _set(c[k], "qz", 0)), 0.0


def complex_json_output(row: Row) -> Iterator[Miss]:
    for what, value, expected in _json_misses(row["verification_info"]["ground_truth"]):
        yield what, json.dumps(value), expected


def code_output_prediction(row: Row) -> Iterator[Miss]:
    truth = row["verification_info"]["code_output"]
    yield "another key", json.dumps({"output": truth}), 0.0
    yield "bare value in a list", json.dumps([truth]), 0.0
    yield "in a list of one", json.dumps({"code_output": [truth]}), 0.0
    yield "further key beside it", json.dumps({"a": 1, "code_output": truth}), 1.0
    wrapped = {"code_output": truth}
    for what, value, expected in _json_misses(wrapped):
        yield what, json.dumps(value), expected


def unscramble_sentence(row: Row) -> Iterator[Miss]:
    truth = [
        line.split(". ", 1)[1] for line in row["verification_info"]["ground_truth"].split("\n")
    ]
    size = len(truth)
    orders = {
        "last first": [size - 1, *range(size - 1)],
        "first two swapped": [1, 0, *range(2, size)],
        "last two swapped": [*range(size - 2), size - 1, size - 2],
        "backwards": list(range(size))[::-1],
        "last one missing": list(range(size - 1)),
        "first one twice": [0, *range(size)],
    }
    for what, order in orders.items():
        run = best = 1
        for left, right in pairwise(order):
            run = run + 1 if right == left + 1 else 1
            best = max(best, run)
        text = "\n".join(f"{place}. {truth[at]}" for place, at in enumerate(order, 1))
        expected = best / size if best > 1 else 0.0
        yield what, f"<unscrambled_text>\n{text}\n</unscrambled_text>", expected
    yield "no tag", row["verification_info"]["ground_truth"], 0.0


def ascii_tree_formatting(row: Row) -> Iterator[Miss]:
    truth = row["verification_info"]["ground_truth"].split("\n")
    answers = {
        "one line wrong": [*truth[:-1], truth[-1] + "x"],
        "first child wrong": [truth[0], truth[1] + "x", *truth[2:]],
        "last line missing": truth[:-1],
        "lines swapped": [truth[0], *truth[2:], truth[1]],
        "no indent": [line.lstrip() for line in truth],
        "no marks": [re.sub(r"[|`]--", "  -", line) for line in truth],
    }
    for what, lines in answers.items():
        matcher = difflib.SequenceMatcher(None, lines, truth)
        block = max(
            size
            for a in range(len(lines) + 1)
            for b in range(len(truth) + 1)
            for size in range(min(len(lines) - a, len(truth) - b) + 1)
            if lines[a : a + size] == truth[b : b + size]
        )
        expected = 0.3 * matcher.ratio() + 0.7 * block / len(truth)
        if any(not line.startswith((" ", "\t")) and line != lines[0] for line in lines[1:]):
            expected /= 2
        if not any("--" in line for line in lines[1:]):
            expected /= 2
        text = "\n".join(lines)
        yield what, f"<ascii_formatted>\n{text}\n</ascii_formatted>", expected
    yield "no tag", "\n".join(truth), 0.0


_WRAPPERS = ("***", "**", "*", "```", '"', "[]", "()", "--", "<>")


def _signature(text: str) -> str:
    for mark in _WRAPPERS:
        left, right = (mark[0], mark[1]) if mark in ("[]", "()", "<>") else (mark, mark)
        if text.startswith(left) and text.endswith(right) and len(text) >= len(left + right):
            return mark
    return "upper" if text.isupper() else ""


def _likeness(text: str, truth: str) -> float:
    ratio = difflib.SequenceMatcher(None, text, truth).ratio()
    return ratio if _signature(text) == _signature(truth) else ratio * 0.1


def formatask(row: Row) -> Iterator[Miss]:
    info = row["verification_info"]
    truths = list(info.values())
    numbers = ["1", "2"] if len(truths) == 2 else [""]

    def answer(texts: list[str]) -> str:
        return "\n".join(
            f"<extracted_formatted{n}>{text}</extracted_formatted{n}>"
            for n, text in zip(numbers, texts, strict=False)
        )

    bare = re.sub(r"[^a-zA-Z ]", "", truths[0]).lower()
    changes = {
        "another letter": truths[0].replace("e", "q", 1).replace("E", "Q", 1),
        "marks lost": bare,
        "wrong wrapper": f"~{bare}~",
        "other wrapper": f"({bare})" if not truths[0].startswith("(") else f"[{bare}]",
    }
    for what, text in changes.items():
        scores = [_likeness(text, truths[0]), *(1.0 for _ in truths[1:])]
        expected = sum(scores) / len(scores) if all(scores) else 0.0
        yield what, answer([text, *truths[1:]]), expected
    yield "no tag", "\n".join(truths), 0.0
    if len(truths) == 2:
        yield "only the first", answer(truths[:1]), 0.0
        scores = [_likeness(truths[1], truths[0]), _likeness(truths[0], truths[1])]
        yield "swapped", answer(truths[::-1]), sum(scores) / 2 if all(scores) else 0.0


def _bad_values(call: ast.expr | None, annotation: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Values that break one constraint each, by as little as can be."""
    given = {}
    if isinstance(call, ast.Call):
        given = {word.arg: ast.literal_eval(word.value) for word in call.keywords}
    for name, limit in given.items():
        match name:
            case "ge":
                yield name, limit - 1
            case "le":
                yield name, limit + 1
            case "gt" | "lt":
                yield name, limit
            case "multiple_of":
                yield name, value + 1
            case "pattern":
                yield name, value + "x"
            case "min_length" if isinstance(value, dict):
                yield name, dict(list(value.items())[: limit - 1])
            case "min_length":
                yield name, value[: limit - 1]
            case "max_length":
                yield name, value + value[:1] * (limit + 1 - len(value))
    match annotation:
        case "bool":
            yield annotation, "maybe"
        case "date":
            yield annotation, "2001-02-30"
        case _ if annotation.startswith("Literal"):
            yield annotation, value + "x"


def pydantic_adherance(row: Row) -> Iterator[Miss]:
    """Misses of the outer model, read off the text of its class."""
    value = json.loads(row["gold"])
    tree = ast.parse(row["verification_info"]["pydantic_config"])
    name = row["verification_info"]["model_name"]
    model = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name)
    yield "keys in another order", json.dumps(_reversed_keys(value)), 1.0
    strict = any(isinstance(line, ast.Assign) for line in model.body)
    yield "one more key", json.dumps({**value, "qz": 1}), 0.0 if strict else 1.0
    for field in (line for line in model.body if isinstance(line, ast.AnnAssign)):
        key = ast.unparse(field.target)
        annotation = ast.unparse(field.annotation)
        optional = annotation.endswith("| None")
        if key in value:
            missing = {other: item for other, item in value.items() if other != key}
            yield f"{key} missing", json.dumps(missing), 1.0 if optional else 0.0
        wrong = {**value, key: {"no": ["such"]}}
        yield f"{key} of another kind", json.dumps(wrong), 0.0
        if value.get(key) is not None:
            for what, bad in _bad_values(field.value, annotation, value[key]):
                yield f"{key}: {what}", json.dumps({**value, key: bad}), 0.0
    for check in (line for line in model.body if isinstance(line, ast.FunctionDef)):
        first, second = re.findall(r"self\.(\w+)", ast.unparse(check))[:2]
        if "<" in ast.unparse(check):
            yield "rule: not below", json.dumps({**value, second: value[first]}), 0.0
        elif "set(" in ast.unparse(check):
            twice = [*value[first], value[first][0]]
            yield "rule: one twice", json.dumps({**value, first: twice}), 0.0
        else:
            yield "rule: off by one", json.dumps({**value, second: value[second] + 1}), 0.0


def _one_more_word(arguments: dict[str, Any], gold: str) -> str:
    return f"{gold} {arguments['word'].title()}"


BROKEN: dict[str, Callable[[dict[str, Any], str], str]] = {
    "validate_lowercase": lambda a, gold: gold[:-2] + gold[-2].upper() + ".",
    "validate_uppercase": lambda a, gold: gold[:-2] + gold[-2].lower() + ".",
    "validate_no_commas": lambda a, gold: gold[:-1] + ", so.",
    "validate_end": lambda a, gold: gold + ".",
    "validate_json_format": lambda a, gold: gold[:-1] + ",}",
    "verify_keyword_frequency": _one_more_word,
    "verify_keywords": lambda a, gold: gold.replace(a["keyword_list"][0], "qz"),
    "verify_letter_frequency": lambda a, gold: gold + a["letter"],
    "verify_paragraph_count": lambda a, gold: gold + "\n***\nOne more.",
    "validate_paragraphs": lambda a, gold: gold.replace(a["first_word"], "Qz"),
    "validate_word_constraint": lambda a, gold: " ".join(gold.split()[: int(a["N"] * 0.9) - 1]),
    "verify_sentence_constraint": lambda a, gold: gold[: gold.rstrip(".").rindex(".") + 1],
    "verify_postscript": lambda a, gold: gold.replace("P.S.", "PS"),
    "validate_placeholders": lambda a, gold: gold.replace("[", "", 1),
    "verify_bullet_points": lambda a, gold: gold + "\n* One more.",
    "validate_title": lambda a, gold: gold.replace(">>", ">"),
    "validate_choice": lambda a, gold: "It is qz.",
    "validate_highlighted_sections": lambda a, gold: gold.replace("*", "", 1),
    "validate_sections": lambda a, gold: gold[: gold.rindex(a["section_splitter"])],
    "validate_two_responses": lambda a, gold: gold.replace("******", "*****"),
    "validate_repeat_prompt": lambda a, gold: gold.replace(".", "!", 1),
    "validate_frequency_capital_words": lambda a, gold: gold.rsplit(" ", 1)[0] + ".",
    "validate_quotation": lambda a, gold: gold[:-1],
}
"""For each constraint a text that breaks it by one: a letter, a word, a part, a mark."""


def ifeval(row: Row) -> Iterator[Miss]:
    arguments = dict(row["verification_info"]["ground_truth"])
    name = arguments.pop("func_name")
    yield f"{name} broken by one", BROKEN[name](arguments, row["gold"]), 0.0
    yield "silence", " \n", 0.0


NEAR_MISSES: dict[str, Callable[[Row], Iterator[Miss]]] = {
    "ascii_tree_formatting": ascii_tree_formatting,
    "code_output_prediction": code_output_prediction,
    "complex_json_output": complex_json_output,
    "formatask": formatask,
    "ifeval": ifeval,
    "pydantic_adherance": pydantic_adherance,
    "unscramble_sentence": unscramble_sentence,
}
