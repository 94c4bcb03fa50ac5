"""Functions of Python's standard library, shown by their source and called here.

The code is part of the interpreter that runs us, so nothing that came with data is executed. Its
text may differ from one Python version to the next; the result is always that of the text shown.
"""

import calendar
import getopt
import html
import http.cookiejar
import inspect
import json
import random
import re
import statistics
import string
import textwrap
import unittest.util
import xml.sax.saxutils
from collections.abc import Callable
from encodings import punycode
from functools import cache
from heapq import merge
from json import encoder
from types import FunctionType
from typing import Any, cast

from tasks.collect.makers._words import ADJECTIVES, NAMES, NOUNS

Draw = Callable[[random.Random], list[Any]]

# Type stubs leave some functions of these modules out.
_cookies: Any = http.cookiejar
_options: Any = getopt


def _ints(rng: random.Random, low: int = 0, high: int = 30) -> list[int]:
    return [rng.randint(low, high) for _ in range(rng.randint(5, 9))]


def _phrase(rng: random.Random, words: int = 4) -> str:
    return " ".join(rng.sample(ADJECTIVES + NOUNS, words))


def _indented(rng: random.Random) -> str:
    """Lines with at least two and mostly more blanks in front, some of them empty."""
    lines = [" " * (2 + 2 * rng.randint(0, 3)) + _phrase(rng, 2) for _ in range(rng.randint(2, 4))]
    lines.insert(rng.randint(1, len(lines)), " " * rng.randint(0, 3))
    return "\n".join(lines)


def _blanks(rng: random.Random) -> str:
    return "".join(
        word + " " * rng.randint(1, 3)
        for word in (rng.choice(NOUNS + ADJECTIVES) for _ in range(rng.randint(3, 5)))
    )


def _capwords(rng: random.Random) -> list[Any]:
    return [_blanks(rng), " "] if rng.random() < 0.5 else [_blanks(rng)]


def _marked(rng: random.Random) -> str:
    """A phrase with characters that markup and patterns have to escape."""
    return "".join(part + rng.choice("<>&\"'+.*") for part in _phrase(rng, 4).split())


def _entities(rng: random.Random) -> dict[str, str]:
    return {rng.choice("\"'+*"): f"&{rng.choice(NOUNS)};", rng.choice("aeio"): rng.choice("AEIO")}


def _differing(rng: random.Random) -> list[Any]:
    return [sorted(_ints(rng, 0, 15)), sorted(_ints(rng, 0, 15))]


def _escaped(rng: random.Random) -> str:
    return "".join(word + rng.choice('"\\\n\té/ü€') for word in _phrase(rng, 3).split())


def _host(rng: random.Random) -> str:
    parts = rng.sample(NOUNS, rng.randint(1, 4))
    return ("." if rng.random() < 0.3 else "") + ".".join([*parts, rng.choice(("local", "org"))])


def _domains(rng: random.Random) -> list[Any]:
    host = _host(rng).lstrip(".")
    tail = host[host.find(".") :] if rng.random() < 0.7 else f".{rng.choice(NOUNS)}.org"
    return [host.title(), rng.choice((tail, tail[1:], host))]


def _command_line(rng: random.Random) -> list[Any]:
    words = rng.sample(NOUNS, 4)
    letters = rng.sample("abcdef", 3)
    short = letters[0] + letters[1] + ":" + letters[2]
    given = [f"-{letters[0]}{letters[1]}{words[0]}", f"--{words[1]}={rng.randint(1, 99)}"]
    given += [f"-{letters[2]}", f"--{words[2]}"]
    rng.shuffle(given)
    return [[*given, words[3], f"-{letters[0]}"], short, [f"{words[1]}=", words[2]]]


def _prefix(rng: random.Random) -> list[Any]:
    """The start of one option, which starts no other one."""
    word = rng.choice(NOUNS)
    others = rng.sample([noun for noun in NOUNS if noun[:2] != word[:2]], 2)
    return [word[: rng.randint(2, 3)], [f"{word}{rng.choice(('=', ''))}", *others]]


def _headers(rng: random.Random) -> list[Any]:
    def pair() -> list[Any]:
        value = rng.choice((None, rng.choice(NOUNS), _phrase(rng, 2), f'{rng.choice(NOUNS)}"s'))
        return [rng.choice(NAMES), value]

    return [[[pair() for _ in range(rng.randint(1, 2))] for _ in range(rng.randint(2, 3))]]


FUNCTIONS: dict[Callable[..., Any], Draw] = {
    calendar.leapdays: lambda rng: [rng.randint(1600, 1900), rng.randint(1901, 2400)],
    calendar.monthrange: lambda rng: [rng.randint(1900, 2100), rng.randint(1, 12)],
    encoder.py_encode_basestring_ascii: lambda rng: [_escaped(rng)],
    getopt.getopt: _command_line,
    html.escape: lambda rng: [_marked(rng), rng.random() < 0.5],
    _cookies.domain_match: _domains,
    _cookies.join_header_words: _headers,
    _cookies.reach: lambda rng: [_host(rng)],
    inspect.cleandoc: lambda rng: [_phrase(rng, 2) + "\n" + _indented(rng)],
    inspect.indentsize: lambda rng: [
        "".join(rng.choice((" ", "  ", "\t")) for _ in range(rng.randint(2, 5))) + rng.choice(NOUNS)
    ],
    _options.long_has_args: _prefix,
    merge: lambda rng: [sorted(_ints(rng, 0, 60)), sorted(_ints(rng, 0, 60))],
    punycode.adapt: lambda rng: [rng.randint(50, 90000), rng.random() < 0.5, rng.randint(2, 30)],
    punycode.insertion_unsort: lambda rng: [
        rng.choice(NOUNS)[:3] + "".join(rng.sample("éüßøñ", 2)) + rng.choice(NOUNS)[:2],
        "".join(sorted("éüßøñ")),
    ],
    re.escape: lambda rng: [_marked(rng)],
    statistics.median_high: lambda rng: [_ints(rng, 0, 99)],
    statistics.median_low: lambda rng: [_ints(rng, 0, 99)],
    statistics.mode: lambda rng: [_ints(rng, 1, 5)],
    statistics.multimode: lambda rng: [list(rng.choice(NOUNS) + rng.choice(NOUNS))],
    string.capwords: _capwords,
    textwrap.dedent: lambda rng: [_indented(rng)],
    textwrap.indent: lambda rng: [_indented(rng), rng.choice(("> ", "# ", "\t"))],
    textwrap.shorten: lambda rng: [_blanks(rng) + _phrase(rng), rng.randint(12, 30)],
    unittest.util.sorted_list_difference: _differing,
    xml.sax.saxutils.escape: lambda rng: [_marked(rng), _entities(rng)],
}
"""Each function with a way to draw its arguments. Only plain Python, with a JSON result."""


@cache
def source_of(function: Callable[..., Any]) -> str:
    """The function's text, with the name of its module."""
    text = inspect.getsource(cast(FunctionType, function)).strip()
    return f"# in the module {function.__module__}\n{text}"


def call(function: Callable[..., Any], rng: random.Random) -> tuple[str, Any]:
    """A call with drawn arguments, as written, and its result as JSON keeps it."""
    arguments = FUNCTIONS[function](rng)
    written = f"{function.__name__}({', '.join(map(repr, arguments))})"
    value = function(*json.loads(json.dumps(arguments)))
    if inspect.isgenerator(value):
        written, value = f"list({written})", list(value)
    return written, json.loads(json.dumps(value, allow_nan=False))
