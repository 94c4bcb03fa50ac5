"""Finding the answer in a completion: think part, boxes, fences, tags.

All functions are total (any text is fine, nothing raises) and run in linear time.
The last complete box, block or pair counts.
"""

import re

_THINK_OPEN, _THINK_CLOSE = "<think>", "</think>"
_BOX = re.compile(r"\\boxed\s*\{")


def answer_part(completion: str) -> str | None:
    """The text after the last `</think>`; None when the thinking was cut off."""
    if _THINK_CLOSE in completion:
        return completion.rsplit(_THINK_CLOSE, 1)[1]
    if _THINK_OPEN in completion:
        return None
    return completion


def has_closed_thinking(completion: str) -> bool:
    """True when the completion closed its thinking part."""
    return _THINK_CLOSE in completion


def last_tag(text: str, tag: str) -> str | None:
    """Content of the last complete `<tag>…</tag>` pair."""
    opening, closing = f"<{tag}>", f"</{tag}>"
    start = text.rfind(opening, 0, max(text.rfind(closing), 0))
    if start < 0:
        return None
    start += len(opening)
    return text[start : text.index(closing, start)]


def _fence_opening(line: str) -> tuple[str, str] | None:
    """(fence, language) when the line opens a block, also behind prose: `The code:```python`."""
    at = min((i for i in (line.find("```"), line.find("~~~")) if i >= 0), default=-1)
    if at < 0 or (line[at] == "~" and line[:at].strip()):
        return None
    info = line[at:].lstrip(line[at])
    if "`" in info:
        return None  # inline code, not a block
    words = info.split(None, 1)
    return line[at : len(line) - len(info)], words[0].lower() if words else ""


def fenced_blocks(text: str) -> list[tuple[str, str]]:
    """(language, content) of each complete fenced block, in order.

    A fence closes with a line of at least as many of the same characters and nothing else.
    """
    blocks: list[tuple[str, str]] = []
    fence = language = ""
    content: list[str] = []
    for line in text.split("\n"):
        line = line.removesuffix("\r")
        if fence:
            stripped = line.strip()
            if len(stripped) >= len(fence) and stripped == fence[0] * len(stripped):
                blocks.append((language, "\n".join(content)))
                fence = ""
            else:
                content.append(line)
        elif opened := _fence_opening(line):
            fence, language = opened
            content = []
    return blocks


def last_block(text: str, language: str | None = None) -> str | None:
    """Content of the last complete fenced block, of one language or of any."""
    found = [body for lang, body in fenced_blocks(text) if language is None or lang == language]
    return found[-1] if found else None


def last_boxed(text: str) -> str | None:
    r"""Content of the last `\boxed{…}` by position whose braces balance.

    `\{` and `\}` are printed braces and do not count.
    """
    stack: list[int] = []  # start of the content of each open brace, negative unless a box
    best: tuple[int, int] | None = None
    i = 0
    while i < len(text):
        char = text[i]
        if char == "\\":
            box = _BOX.match(text, i)
            if box:
                stack.append(box.end())
            i = box.end() if box else i + 2
            continue
        if char == "{":
            stack.append(-1)
        elif char == "}" and stack:
            start = stack.pop()
            if start >= 0 and (best is None or start > best[0]):
                best = (start, i)
        i += 1
    return text[best[0] : best[1]] if best else None
