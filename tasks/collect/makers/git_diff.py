"""git_diff: write a described change of a small file as a unified diff.

Level 1 changes one line of a list of settings; 2 changes, adds or removes lines of a Python
function; 3 makes two changes in a longer file.
"""

import difflib
import random
from typing import Any

from tasks.collect.makers._random import stream
from tasks.collect.makers._task import check_range, row
from tasks.collect.makers._words import ADJECTIVES, NOUNS

Change = tuple[str, list[str], list[str], list[str]]  # file name, before, after, orders


def _settings(rng: random.Random) -> Change:
    keys = rng.sample(NOUNS, rng.randint(3, 4))
    before = [f"{key} = {rng.randint(1, 99)}" for key in keys]
    place = rng.randrange(len(keys))
    old = int(before[place].split(" = ")[1])
    new = rng.choice([n for n in range(1, 100) if n != old])
    after = list(before)
    after[place] = f"{keys[place]} = {new}"
    return f"{rng.choice(ADJECTIVES)}.cfg", before, after, [f"set {keys[place]} to {new}"]


def _function(rng: random.Random) -> tuple[list[str], str, str]:
    name, argument, local = rng.sample(NOUNS, 3)
    a, b = rng.randint(2, 30), rng.randint(2, 30)
    lines = [
        f"def get_{name}(my_{argument}):",
        f"    my_{local} = my_{argument} * {a}",
        f"    if my_{local} > {b}:",
        f"        my_{local} = {b}",
        f"    return my_{local}",
    ]
    return lines, f"my_{local}", name


def _edit(rng: random.Random, before: list[str], local: str, name: str) -> tuple[list[str], str]:
    kind = rng.choice(("value", "print", "sign", "remove"))
    after = list(before)
    if kind == "value":
        new = rng.randint(31, 99)
        after[1] = before[1].rsplit(" ", 1)[0] + f" {new}"
        return after, f"in get_{name}, multiply by {new} instead"
    if kind == "print":
        after.insert(4, f"    print({local})")
        return after, f"in get_{name}, print {local} in the line before the return"
    if kind == "sign":
        after[2] = before[2].replace(" > ", " >= ")
        return after, f"in get_{name}, use >= in place of > in the condition"
    del after[2:4]
    return after, f"in get_{name}, remove the if statement with its body"


def _one_function(rng: random.Random) -> Change:
    before, local, name = _function(rng)
    after, order = _edit(rng, before, local, name)
    return f"{name}.py", before, after, [order]


def _two_functions(rng: random.Random) -> Change:
    before: list[str] = []
    after: list[str] = []
    orders: list[str] = []
    names: list[str] = []
    while len(names) < 2:
        function, local, name = _function(rng)
        if name in names:
            continue
        changed, order = _edit(rng, function, local, name)
        gap = ["", ""] if names else []
        before += gap + function
        after += gap + changed
        names.append(name)
        orders.append(order)
    return f"{names[0]}_{names[1]}.py", before, after, orders


_LEVELS = {1: _settings, 2: _one_function, 3: _two_functions}


def make(seed: int, index: int, *, level: int = 2) -> dict[str, Any]:
    """One change; the golden diff has three lines of context, as git writes it."""
    check_range("git_diff", "level", level, 1, 3)
    rng = stream("git_diff", seed, index)
    name, before, after, orders = _LEVELS[level](rng)
    head = f"diff --git a/{name} b/{name}"
    body = difflib.unified_diff(before, after, f"a/{name}", f"b/{name}", lineterm="")
    golden = "\n".join([head, *body])
    listing = "\n".join(before)
    prompt = (
        f"File {name}:\n```\n{listing}\n```\nChange: {'; '.join(orders)}.\n"
        "Give the change as a git diff (lines diff --git, ---, +++, @@) in a ```diff block."
    )
    gold = f"```diff\n{golden}\n```"
    return row("git_diff", seed, index, prompt, {"golden_diff": golden}, gold, level=level)
