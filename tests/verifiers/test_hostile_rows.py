"""Rows are not trusted either: sources of pydantic models, entries of reasoning-gym."""

import json
import os

import pytest

import verifiers
from verifiers.kinds import code, pydantic_adherence
from verifiers.sandbox import Limits

HEAD = "from pydantic import BaseModel\nclass M(BaseModel):\n    n: int\n"
MODELS = {
    "exits": HEAD + "import sys\nsys.exit(0)",
    "exits_hard": HEAD + "import os\nos._exit(0)",
    "spins": HEAD + "while True: pass",
    "sleeps": HEAD + "import time\ntime.sleep(100)",
    "eats_memory": HEAD + "x = bytearray(2 << 30)",
    "floods": HEAD + "while True: print('x' * 100000)",
    "recurses": HEAD + "import sys\nsys.setrecursionlimit(10**9)\ndef f(): f()\nf()",
    "kills": HEAD + "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    "reads": HEAD + "open('/etc/passwd')",
    "forks": HEAD + "import os\nos.fork()",
    "connects": HEAD + "import socket\nsocket.create_connection(('127.0.0.1', 80))",
    "raises_while_validating": "from pydantic import BaseModel, model_validator\n"
    "class M(BaseModel):\n    @model_validator(mode='before')\n"
    "    def check(cls, v): raise RuntimeError('no')",
    "exits_while_validating": "import os\nfrom pydantic import BaseModel, model_validator\n"
    "class M(BaseModel):\n    @model_validator(mode='before')\n    def check(cls, v): os._exit(0)",
    "forges_a_frame": HEAD + "import os\nos.write(3, b'{\"value\": true}')\nos._exit(0)",
    "long_reason": "from pydantic import BaseModel, field_validator\nimport os, sys\n"
    "os.write(3, b'x' * 10000)\n" + HEAD,
    "no_model": "M = int",
    "pretends": "class M:\n    @classmethod\n    def model_validate(cls, o): return o",
    "does_not_parse": "class M(BaseModel:",
    "bomb_at_compile": "M = " + "-" * 100_000 + "1",
}


@pytest.mark.parametrize("name", MODELS)
def test_a_hostile_model_source_is_the_rows_fault(name, sandbox_here, monkeypatch) -> None:
    monkeypatch.setattr(pydantic_adherence, "LIMITS", Limits(cpu_seconds=1, wall_seconds=3.0))
    row = {"pydantic_config": MODELS[name], "model_name": "M"}
    got = verifiers.score("pydantic_adherance", '{"n": 1}', row)
    assert (got.score, got.status) == (None, "unverifiable"), got
    fine = {"pydantic_config": HEAD, "model_name": "M"}
    assert verifiers.score("pydantic_adherance", '{"n": 1}', fine).score == 1.0


EVIL = "__import__('os').system('touch {mark}') or 1"
EVIL_ENTRIES = [
    ("number_sorting", EVIL, {}),
    ("binary_matrix", EVIL, {"matrix": [[1]], "solution": [[0]]}),
    ("spiral_matrix", EVIL, {"matrix": [[1]], "solution": [1]}),
    ("string_insertion", EVIL, {}),
    ("n_queens", EVIL, {"solutions": [], "valid_answers": [EVIL], "board": []}),
    ("bitwise_arithmetic", EVIL, {"problem": EVIL}),
    ("countdown", EVIL, {"numbers": [1, 2], "target": 1, "expression": EVIL}),
    ("puzzle24", EVIL, {"numbers": [1, 2, 3, 4]}),
    ("simple_integration", EVIL, {"integrand": EVIL, "variable": "x"}),
    ("intermediate_integration", EVIL, {"integrand": EVIL, "variable": "x"}),
    ("polynomial_multiplication", EVIL, {"result": EVIL, "variables": ["x"]}),
    ("basic_arithmetic", EVIL, {"expression": EVIL}),
    ("codeio", EVIL, {"input_data": EVIL, "code": EVIL}),
    ("propositional_logic", EVIL, {"premises": [EVIL], "variables": ["P"]}),
    ("gsm_symbolic", EVIL, {"variables": {}}),
    ("circuit_logic", EVIL, {"expression": EVIL}),
]


@pytest.mark.parametrize("dataset, text, metadata", EVIL_ENTRIES, ids=[e[0] for e in EVIL_ENTRIES])
def test_nothing_of_an_entry_or_answer_is_evaluated(dataset, text, metadata, tmp_path) -> None:
    mark = tmp_path / "evaluated"
    evil = json.loads(json.dumps([text, metadata]).replace("{mark}", str(mark)))
    entry = {"question": "?", "answer": "1", "metadata": evil[1] | {"source_dataset": dataset}}
    for answer, truth in ((evil[0], "1"), ("1", evil[0]), (evil[0], evil[0])):
        row = {
            "reasoning_gym_dataset": dataset,
            "reasoning_gym_entry": json.dumps({**entry, "answer": truth}),
        }
        verifiers.score("reasoning_gym", f"<answer>{answer}</answer>", row)
        assert not mark.exists()


MODEL = {"pydantic_config": HEAD, "model_name": "M"}
BOMBS = [
    ("prime_rl_code", "```python\nprint(1)\n```", {"test_cases": "[" * 200_000}),
    ("prime_rl_code", "```python\n" + "(" * 300_000 + "\n```", None),
    ("prime_rl_code", "```python\nx = " + "1+" * 200_000 + "1\n```", None),
    ("prime_rl_code", "```python\n" + "\ud800" * 10 + "\n```", None),
    ("prime_rl_code", "```python\n\x00\n```", None),
    ("pydantic_adherance", "{" * 200_000, MODEL),
    (
        "pydantic_adherance",
        '{"n": ' + "9" * 300_000 + "}",
        {"pydantic_config": HEAD} | {"model_name": "M"},
    ),
]


@pytest.mark.parametrize("task_type, completion, info", BOMBS)
def test_bombs_of_text_score_nothing(task_type, completion, info, sandbox_here) -> None:
    tests = {"test_cases": json.dumps({"inputs": [""], "outputs": ["1"]})}
    assert verifiers.score(task_type, completion, info or tests).score in (0, None)


def test_a_forged_result_as_large_as_allowed_costs_little(sandbox_here) -> None:
    flood = (
        "import os, sys\ndef f(x):\n    n = sys._getframe(1).f_locals['job']['nonce']\n"
        "    d = (n + '[' + '0.1,' * 4000000 + '1]' + n).encode()\n"
        "    while d: d = d[os.write(3, d):]\n    os._exit(0)"
    )
    tests = {"test_cases": json.dumps({"inputs": ["1"], "outputs": ["1"], "fn_name": "f"})}
    before = os.times()
    got = verifiers.score("prime_rl_code", f"```python\n{flood}\n```", tests)
    assert got.score == 0, got
    assert os.times().user - before.user < 1


def test_equal_output_is_found_whatever_blanks_follow() -> None:
    assert code.same_output(b"a  \nb\n\n \n", "a\nb")
    assert not code.same_output(b"a\n\nb", "a\nb")
    assert not code.same_output(b"x\n" * 1_000_000, "a\nb")
    assert not code.same_output(b" a", "a")
    assert code.same_output(b"", " \n")
