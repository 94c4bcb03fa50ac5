"""Rows for the verify benchmarks: all kinds, each row distinct, the right score known.

`made(n)` is a pure function of the number of the row: (task_type, completion, verification_info,
score). About one in five answers is wrong. `HOSTILE` are answers and rows that hang, eat memory,
crash, flood, lie or make no sense; `None` as a score means unscored.
"""

import json
import random
from collections.abc import Callable
from typing import Any

Row = tuple[str, str, dict[str, Any], float | None]
THINK = "<think>Let me see.</think>\n"


def _math(n: int, rng: random.Random) -> Row:
    a, b = n + 2, rng.randrange(2, 999)
    b += a == b
    right = rng.random() < 0.8
    truth, answer = [
        (str(a * b), f"{a * b if right else a * b + 1}"),
        (
            f"\\frac{{{a}}}{{{b}}}",
            f"\\frac{{{2 * a}}}{{{2 * b}}}" if right else f"\\frac{{{b}}}{{{a}}}",
        ),
        (f"\\sqrt{{{a * a}}}+{b}", str(a + b) if right else str(a - b)),
        (f"({a}, {b})", f"({a}, {b})" if right else f"({b}, {a})"),
        (f"\\{{{a}, {a + b}\\}}", f"\\{{{a + b}, {a}\\}}" if right else f"\\{{{a}\\}}"),
        (f"x^2 - {a}x + {b}", f"{b} + x^2 - {a}x" if right else f"x^2 + {a}x + {b}"),
    ][n % 6]
    info = {"ground_truth": truth}
    return "verifiable_math", f"{THINK}It is \\boxed{{{answer}}}.", info, float(right)


def _code(n: int, rng: random.Random) -> Row:
    a, right = rng.randrange(1, 10**6), rng.random() < 0.8
    if n % 2:
        source = (
            f"import sys\nfrom collections import Counter\n\n\ndef solve(text):\n    total = {a}\n"
            f"    for word in text.split():\n        total += int(word) * {n % 97 + 1}\n"
            f"    return total{'' if right else ' + 1'}\n\n\nprint(solve(sys.stdin.read()))\n"
        )
        value = [rng.randrange(10**6) for _ in range(5)]
        tests: dict[str, Any] = {
            "inputs": [" ".join(map(str, value))],
            "outputs": [str(a + sum(value) * (n % 97 + 1))],
        }
    else:
        source = (
            f"from typing import List\n\n\nclass Solution:\n"
            f"    def f(self, nums: List[int]) -> List[int]:\n        seen = {{}}\n"
            f"        for i, x in enumerate(nums):\n            if {a} - x in seen:\n"
            f"                return [seen[{a} - x], i{'' if right else ' + 1'}]\n"
            f"            seen[x] = i\n        return []\n"
        )
        first = rng.randrange(a)
        tests = {
            "inputs": [json.dumps([first, a + 7, a - first])],
            "outputs": ["[0, 2]"],
            "fn_name": "f",
        }
    completion = f"{THINK}```python\n{source}```"
    return "prime_rl_code", completion, {"test_cases": json.dumps(tests)}, float(right)


def _model(n: int, rng: random.Random) -> Row:
    right = rng.random() < 0.8
    source = (
        "from typing import List\nfrom pydantic import BaseModel, Field\n\n\n"
        f"class Part(BaseModel):\n    number: int = Field(ge={n})\n    names: List[str]\n\n\n"
        f"class Whole{n}(BaseModel):\n    part: Part\n    size: float\n"
    )
    value = {"part": {"number": n + (5 if right else -5), "names": ["a", str(n)]}, "size": 1.5}
    info = {"pydantic_config": source, "model_name": f"Whole{n}"}
    return "pydantic_adherance", f"{THINK}```json\n{json.dumps(value)}\n```", info, float(right)


def _reasoning_gym(n: int, rng: random.Random) -> Row:
    a, b, right = n, rng.randrange(10**6), rng.random() < 0.8
    entry = {
        "question": f"{a} + {b} =",
        "answer": str(a + b),
        "metadata": {"source_dataset": "chain_sum", "expression": f"{a} + {b}"},
    }
    info = {"reasoning_gym_dataset": "chain_sum", "reasoning_gym_entry": json.dumps(entry)}
    answer = a + b if right else a + b + 1
    return "reasoning_gym", f"{THINK}<answer>{answer}</answer>", info, float(right)


def _value(n: int, rng: random.Random) -> dict[str, Any]:
    items = [{"id": n + i, "text": f"name {rng.random():.6f}", "on": i % 2 == 0} for i in range(4)]
    return {"number": n, "items": items, "nothing": None}


def _output(n: int, rng: random.Random) -> Row:
    right, value = rng.random() < 0.8, _value(n, rng)
    given = value if right else {**value, "number": n + 1}
    completion = f"{THINK}```json\n{json.dumps({'code_output': given})}\n```"
    return "code_output_prediction", completion, {"code_output": value}, float(right)


def _json(n: int, rng: random.Random) -> Row:
    right, value = rng.random() < 0.8, _value(n, rng)
    given = value if right else {key: value[key] for key in ("number", "items")}
    completion = f"{THINK}Here: {json.dumps(given, indent=1)}"
    return "complex_json_output", completion, {"ground_truth": value}, float(right)


def _ifeval(n: int, rng: random.Random) -> Row:
    right = rng.random() < 0.8
    text = f"row {n} has {rng.random():.9f} words" + ("" if right else ", And More")
    name = ("validate_lowercase", "validate_no_commas")[n % 2]
    return "ifeval", THINK + text, {"ground_truth": {"func_name": name}}, float(right)


def _sentences(n: int, rng: random.Random) -> Row:
    right = rng.random() < 0.8
    lines = [f"In part {i} the number {n} meets {rng.random():.6f}." for i in range(5)]
    given = lines if right else lines[::-1]
    truth, answer = ("\n".join(f"{i}. {s}" for i, s in enumerate(x, 1)) for x in (lines, given))
    completion = f"{THINK}<unscrambled_text>\n{answer}\n</unscrambled_text>"
    return "unscramble_sentence", completion, {"ground_truth": truth}, float(right)


def _tree(n: int, rng: random.Random) -> Row:
    lines = [f"root{n}"] + [f" +--leaf{i}{rng.random():.4f}" for i in range(6)]
    text = "\n".join(lines)
    completion = f"{THINK}<ascii_formatted>\n{text}\n</ascii_formatted>"
    return "ascii_tree_formatting", completion, {"ground_truth": text}, 1.0


def _format(n: int, rng: random.Random) -> Row:
    text = f"**row {n} {rng.random():.8f}**"
    completion = f"{THINK}<extracted_formatted>{text}</extracted_formatted>"
    return "formatask", completion, {"ground_truth": text}, 1.0


def _diff(n: int, rng: random.Random) -> Row:
    diff = f"--- a/f{n}.py\n+++ b/f{n}.py\n@@ -1,2 +1,2 @@\n-x = {n}\n+x = {rng.random()}\n y = 1"
    return "git_diff", f"{THINK}```diff\n{diff}\n```", {"golden_diff": diff}, 1.0


def _reverse(n: int, rng: random.Random) -> Row:
    text = f"row {n} says {rng.random():.9f}"[::-1]
    return "reverse_text", f"{THINK}<answer>{text}</answer>", {"ground_truth": text}, 1.0


MIX: tuple[tuple[Callable[[int, random.Random], Row], int], ...] = (
    (_math, 28), (_code, 8), (_model, 4), (_reasoning_gym, 12), (_output, 8), (_json, 8),
    (_ifeval, 8), (_sentences, 6), (_tree, 4), (_format, 4), (_diff, 4), (_reverse, 6),
)  # fmt: skip
"""Kinds and how many of a hundred rows they have."""
_TURNS = [maker for maker, share in MIX for _ in range(share)]


def made(n: int) -> Row:
    """Row number n."""
    rng = random.Random(n)
    return _TURNS[n % len(_TURNS)](n, rng)


def code_row(n: int) -> Row:
    """A short program with one test, number n."""
    return _code(n, random.Random(n))


def _program(source: str, output: str = "42") -> tuple[str, dict[str, Any]]:
    tests = {"inputs": [""], "outputs": [output]}
    return f"```python\n# {{n}}\n{source}\n```", {"test_cases": json.dumps(tests)}


def _config(source: str) -> tuple[str, dict[str, Any]]:
    return '{{"n": {n}}}', {"pydantic_config": source, "model_name": "M"}


_DIFF = "```diff\n" + "ab" * 60_000 + "{n}\n```"
LONG: tuple[tuple[str, str, dict[str, Any], float | None], ...] = (
    ("prime_rl_code", *_program("while True: pass"), 0.0),
    ("prime_rl_code", *_program("import time\ntime.sleep(100)"), 0.0),
    ("git_diff", _DIFF, {"golden_diff": "ba" * 60_000}, 0.0),
    ("pydantic_adherance", *_config("while True: pass"), None),
    ("verifiable_math", "\\boxed{{9^{{9^{{9^{{9^{{{n}}}}}}}}}}}", {"ground_truth": "7"}, 0.0),
)
"""Rows that take their whole limit: 5 s of CPU, 15 s of wall time, then 10, 5 and 10 s of CPU."""
SHORT: tuple[tuple[str, str, dict[str, Any], float | None], ...] = (
    ("prime_rl_code", *_program("x = bytearray(3 << 30)"), 0.0),
    ("prime_rl_code", *_program("a = [0]\nwhile True: a += a"), 0.0),
    ("prime_rl_code", *_program("import os\nos._exit(0)"), 0.0),
    ("prime_rl_code", *_program("import ctypes\nctypes.string_at(0)"), 0.0),
    ("prime_rl_code", *_program("import os\nwhile True: os.fork()"), 0.0),
    ("prime_rl_code", *_program("while True: print('x' * 100000)"), 0.0),
    ("prime_rl_code", *_program("for i in range(10**7): open(str(i), 'w')"), 0.0),
    ("prime_rl_code", *_program("import os, signal\nos.kill(os.getppid(), signal.SIGKILL)"), 0.0),
    ("prime_rl_code", "```python\n{n}" + "(" * 300_000 + "\n```", _program("")[1], 0.0),
    ("prime_rl_code", "```python\n{n}\n```", {"test_cases": "[" * 100_000}, None),
    ("pydantic_adherance", *_config("import os\nos._exit(1)"), None),
    ("pydantic_adherance", *_config("x = bytearray(3 << 30)"), None),
    (
        "verifiable_math",
        "\\boxed{{{n}" + "{{" * 40_000 + "}}" * 40_000 + "}}",
        {"ground_truth": "7"},
        0.0,
    ),
    ("verifiable_math", "\\boxed{{{n}}}", {"ground_truth": ""}, None),
    ("verifiable_math", "<think>{n} " + "a" * 2_000_000, {"ground_truth": "7"}, 0.0),
    ("complex_json_output", '{{"a": {n}' + "9" * 1_000_000 + "}}", {"ground_truth": {}}, 0.0),
    ("complex_json_output", "[" * 1_000_000 + "{n}", {"ground_truth": {"a": 1}}, 0.0),
    ("reverse_text", "<answer>{n}" + "x" * 500 + "</answer>", {"truth": 1}, None),
    ("ifeval", "{n}", {"ground_truth": {"func_name": "nobody_knows"}}, None),
    ("reasoning_gym", "<answer>{n}</answer>", {"reasoning_gym_dataset": "no_such"}, None),
)
"""Rows that attack or make no sense, and end soon."""


def hostile(n: int, long: bool) -> Row:
    """Hostile row number n, one that takes its whole limit or one that ends soon."""
    table = LONG if long else SHORT
    task_type, completion, info, score = table[n % len(table)]
    return task_type, completion.format(n=n), {**info, "number": n}, score
