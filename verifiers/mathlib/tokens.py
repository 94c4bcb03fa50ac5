r"""Tokens of a mathematical text, LaTeX and sympy-like notation alike.

Fonts and spacing vanish here; `\text{…}` stays a token of its own, because a word behind a
number is a unit. What is not on the lists is an error: nothing is skipped silently.
"""

import re
from dataclasses import dataclass

from verifiers.mathlib.errors import Unparsable


@dataclass(frozen=True)
class Token:
    """kind: num, sym, const, func, text, env (begin of a matrix), or the token itself."""

    kind: str
    value: str = ""


_UNICODE = {
    "π": r"\pi ", "∞": r"\infty ", "√": r"\sqrt ", "×": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ",
    "÷": r"\div ", "−": "-", "–": "-", "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "∪": r"\cup ",
    "∈": r"\in ", "°": r"\degree ", "±": r"\pm ", "²": "^{2}", "³": "^{3}", "∅": r"\emptyset ",
    "θ": r"\theta ", "ℝ": r"\mathbb{R}", "½": r"\frac{1}{2}", "\u00a0": " ", "\u2009": " ",
    "≈": r"\approx ", "∑": r"\sum ",
}  # fmt: skip
_UNICODE_RE = re.compile("|".join(map(re.escape, _UNICODE)))
_FUNCTIONS = frozenset(
    "sin cos tan cot sec csc arcsin arccos arctan asin acos atan acot sinh cosh tanh coth asinh "
    "acosh atanh log ln lg exp sqrt abs floor ceil ceiling factorial binomial Rational max min "
    "gcd lcm".split()
)
_CONSTANTS = {"pi": "pi", "oo": "oo", "E": "e", "I": "i", "e": "e", "i": "i"}
_GREEK = frozenset(
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi "
    "rho sigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Sigma Phi Psi "
    "Omega ell hbar".split()
)
_SPACING = frozenset(
    "displaystyle textstyle left right big Big bigg Bigg bigl bigr Bigl Bigr quad qquad limits "
    "nolimits middle medspace thinspace rm bf it angle triangle".split()
)
_COMMANDS = {
    "cdot": "*", "times": "*", "ast": "*", "div": "/", "pm": "pm", "mp": "mp", "le": "<=",
    "leq": "<=", "leqslant": "<=", "ge": ">=", "geq": ">=", "geqslant": ">=", "ne": "!=",
    "neq": "!=", "lt": "<", "gt": ">", "in": "in", "cup": "cup", "degree": "deg", "frac": "frac",
    "dfrac": "frac", "tfrac": "frac", "cfrac": "frac", "binom": "binom", "dbinom": "binom",
    "tbinom": "binom", "infty": "const:oo", "pi": "const:pi", "lfloor": "lfloor",
    "rfloor": "rfloor", "lceil": "lceil", "rceil": "rceil", "lvert": "|", "rvert": "|",
    "vert": "|", "mid": "|", "lbrace": "lset", "rbrace": "rset", "emptyset": "empty",
    "varnothing": "empty", "overline": "overline", "prime": "'", "lbrack": "[", "rbrack": "]",
    "land": "sep", "lor": "sep", "wedge": "sep", "vee": "sep", "%": "%", "{": "lset",
    "}": "rset", "|": "||", "\\": "row", "approx": "approx", "colon": ":", "sum": "sum",
    "prod": "prod",
}  # fmt: skip
_TEXT = frozenset("text textrm textbf textit textsf texttt mbox hbox textnormal".split())
_FONTS = frozenset(
    "mathrm mathbf mathit mathsf mathcal mathscr mathfrak boldsymbol bm operatorname".split()
)
_MATRICES = frozenset("matrix pmatrix bmatrix Bmatrix array smallmatrix".split())
_WORDS = sorted([*_FUNCTIONS, "pi", "oo"], key=len, reverse=True)
_NUMBER = re.compile(r"\d+\.\d+|\d+\.(?!\d)|\d+|\.\d+")
_PLAIN_WORDS = frozenset(("yes", "no", "odd", "none", "true"))
_SEPARATORS = frozenset(("or", "and", "and/or", ",", ";", "&"))
_PERCENT = frozenset(("percent", "pct", "percentage"))
_BARE_UNIT = re.compile(r"(?:km/hr?|cm|mm|km|kg|lbs|mph|kph|kHz|Hz|kWh|mL|hrs)(?![A-Za-z])")
"""Units without `\\text`, behind a number; none that algebra would read as letters (ml, mi, ft)."""
_GLUED = re.compile(r"(?:qquad|quad)(?=[A-Za-z])")
"""Data with lost blanks writes `\\quadx`, which LaTeX itself refuses."""
_VALUE_ENDS = frozenset(("num", "}", ")", "const", "%"))


def _group(text: str, at: int) -> tuple[str, int]:
    """Content of the brace group at `at` and the place behind it."""
    while at < len(text) and text[at] == " ":
        at += 1
    if at >= len(text) or text[at] != "{":
        raise Unparsable("a command without its braces")
    depth = 0
    for i in range(at, len(text)):
        if text[i] == "\\":
            continue
        if text[i] == "{" and text[i - 1] != "\\":
            depth += 1
        elif text[i] == "}" and text[i - 1] != "\\":
            depth -= 1
            if depth == 0:
                return text[at + 1 : i], i + 1
    raise Unparsable("braces do not balance")


def _letters(run: str, glued: bool = False) -> list[Token]:
    """A run of letters: known names, else one symbol a letter, else a word.

    `glued`: it stands right behind a value, so that an "or" in front is a word (`1orx`).
    """
    if run.lower() in _SEPARATORS:
        return [Token("sep")]
    if run.lower() in _PERCENT:
        return [Token("%")]
    if glued and (word := re.match(r"(?:or|and)(?=.{1,2}$)", run)):
        return [Token("sep"), *_letters(run[word.end() :])]
    if run in _PLAIN_WORDS or run[:1].lower() + run[1:] in _PLAIN_WORDS:
        return [Token("text", run)]
    tokens, i = [], 0
    known = False
    while i < len(run):
        for name in _WORDS:
            if run.startswith(name, i):
                tokens.append(Token("func", name) if name in _FUNCTIONS else _constant(name))
                known = True
                i += len(name)
                break
        else:
            tokens.append(_constant(run[i]) if run[i] in _CONSTANTS else Token("sym", run[i]))
            i += 1
    if len(run) >= 4 and (not known or len(tokens) > 3):
        return [Token("text", run)]
    return tokens


def _constant(name: str) -> Token:
    return Token("const", _CONSTANTS[name])


def _text_token(content: str, depth: int) -> list[Token]:
    content = " ".join(content.replace("~", " ").replace("$", " ").split())
    if not content:
        return []
    if content.lower() in _SEPARATORS:
        return [Token("sep")]
    if content.lower() in _PERCENT:
        return [Token("%")]
    if content in _CONSTANTS:
        return [_constant(content)]
    if option := re.fullmatch(r"\(([A-Za-z])\)", content):
        return [Token("text", option[1])]
    if re.fullmatch(r"[-+0-9.,/()\s]+", content):
        return _tokens(content, depth + 1)
    return [Token("text", content)]


def _command(text: str, at: int, depth: int) -> tuple[list[Token], int]:
    match = re.compile(r"[A-Za-z]+|.", re.DOTALL).match(text, at + 1)
    if match is None:
        raise Unparsable("a backslash at the end")
    name, end = match[0], match.end()
    if glued := _GLUED.match(name):
        name, end = glued[0], at + 1 + glued.end()
    if name in _SPACING or name in ",;:! >/":
        # An unbalanced delimiter, as in `\left.`, prints nothing.
        return [], end + 1 if name in ("left", "right") and text[end : end + 1] == "." else end
    if name in _TEXT:
        content, end = _group(text, end)
        return _text_token(content, depth), end
    if name in _FONTS:
        if text[end : end + 1] == "*":
            end += 1
        content, end = _group(text, end)
        bare = content.strip()
        if len(bare) > 1 and bare.isalpha() and bare not in _FUNCTIONS and bare not in _CONSTANTS:
            return [Token("text", bare)], end
        return _tokens(content, depth + 1), end
    if name == "mathbb":
        content, end = _group(text, end) if text[end : end + 1] in "{ " else (text[end], end + 1)
        return [Token("field", content.strip())], end
    if name in ("begin", "end"):
        content, end = _group(text, end)
        if content.rstrip("*") not in _MATRICES:
            raise Unparsable(f"environment {content[:20]}")
        if name == "begin" and content == "array":
            _, end = _group(text, end)
        return [Token("env" if name == "begin" else "endenv")], end
    if name == "sqrt":
        return [Token("root")], end
    if name in _FUNCTIONS:
        return [Token("func", name)], end
    if name in _GREEK:
        return [Token("sym", "\\" + name)], end
    kind = _COMMANDS.get(name)
    if kind is None:
        raise Unparsable(f"unknown command \\{name[:20]}")
    if kind.startswith("const:"):
        return [Token("const", kind[6:])], end
    return [Token(kind)], end


_DOUBLES = {"**": "^", "<=": "<=", ">=": ">=", "!=": "!=", "==": "="}
_SINGLES = frozenset("+-*/^=<>()[]{}|!,;:_&%'")


def _tokens(text: str, depth: int = 0) -> list[Token]:
    if depth > 20:
        raise Unparsable("fonts nested too deep")
    out: list[Token] = []
    i = 0
    while i < len(text):
        char = text[i]
        if char in " \t\r\n~":
            i += 1
        elif char == "\\":
            if re.match(r"\\circ(?![A-Za-z])", text[i:]):
                if not out or out[-1].kind not in ("^", "{"):
                    raise Unparsable("a composition sign")
                out.append(Token("circ"))
                i += 5
            else:
                found, i = _command(text, i, depth)
                out += found
        elif (match := _NUMBER.match(text, i)) is not None:
            out.append(Token("num", match[0]))
            i = match.end()
        elif char.isascii() and char.isalpha():
            behind_value = bool(out) and out[-1].kind in _VALUE_ENDS
            if behind_value and (unit := _BARE_UNIT.match(text, i)):
                out.append(Token("text", unit[0]))
                i = unit.end()
                continue
            end = i
            while end < len(text) and text[end].isascii() and text[end].isalpha():
                end += 1
            out += _letters(text[i:end], glued=behind_value and text[i - 1] != " ")
            i = end
        elif text[i : i + 2] in _DOUBLES:
            out.append(Token(_DOUBLES[text[i : i + 2]]))
            i += 2
        elif char in _SINGLES:
            out.append(Token(char))
            i += 1
        else:
            raise Unparsable(f"character {char!r}")
    return out


_BRACED_COMMA = r"\s*\{\s*,\s*\}\s*"
_THOUSANDS = re.compile(
    rf"(?<=\d)(?<!(?<!\d)0)(?:{_BRACED_COMMA}|,\\!\s*|\\,|\\ )(?=\d{{3}}(?!\d))"
)
_DECIMAL_COMMA = re.compile(rf"(?<=\d){_BRACED_COMMA}(?=\d)")


def tokenize(text: str) -> list[Token]:
    """All tokens of a text; Unparsable when something is not known."""
    text = _UNICODE_RE.sub(lambda match: _UNICODE[match[0]], text.strip())
    text = re.sub(r"\\[()\[\]]|(?<!\\)\$", " ", text)
    text = re.sub(r"^\s*\\\$\s*", "", text)
    text = _THOUSANDS.sub("", text)
    text = _DECIMAL_COMMA.sub(".", text)
    if re.fullmatch(r"\s*[-+]?\s*[1-9]\d{0,2}(?:(?:,\d{3})+|(?: \d{3})+)(?:\.\d+)?\s*\.?", text):
        text = text.replace(",", "").replace(" ", "")
    return _tokens(text.strip().rstrip("."))
