"""The constraint functions of the public IFEval-style data.

Each takes the stripped answer and its arguments and returns a bool; RowFault when the
arguments decide nothing. Definitions follow the sentence that the prompt shows.
"""

import functools
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from verifiers import strict_json
from verifiers.errors import RowFault, VerifierFault

_SENTENCE_END = re.compile(r"(?<!\w\.\w.)(?<![A-Z][a-z]\.)(?<=[.?!])\s")


def _number(value: Any, name: str = "N") -> int:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise RowFault(f"argument {name} must be a number of at least 0, got {value!r:.60}")
    if not 0 <= value < 10**9 or value != int(value):  # tables with gaps turn integers to floats
        raise RowFault(f"argument {name} must be a whole number of at least 0, got {value}")
    return int(value)


def _phrase(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise RowFault(f"argument {name} must be a non-empty string, got {value!r:.60}")
    return value


def _phrases(value: Any, name: str) -> list[str]:
    if not isinstance(value, list) or not value:
        raise RowFault(f"argument {name} must be a non-empty list, got {value!r:.60}")
    return [_phrase(item, name) for item in value]


def _quantity(count: int, wanted: int, quantifier: Any, tolerance: int) -> bool:
    if quantifier == "at least":
        return count >= wanted
    if quantifier == "at most":
        return count <= wanted
    if quantifier == "around":
        return abs(count - wanted) <= tolerance
    raise RowFault(
        f"argument quantifier must be 'at least', 'at most' or 'around', got {quantifier!r:.60}"
    )


def verify_keywords(text: str, keyword_list: Any) -> bool:
    """All keywords occur, case ignored."""
    lower = text.lower()
    return all(word.lower() in lower for word in _phrases(keyword_list, "keyword_list"))


def verify_keyword_frequency(text: str, word: Any, N: Any) -> bool:
    """The word occurs exactly N times as a whole word, case ignored."""
    wanted, phrase = _number(N), re.escape(_phrase(word, "word").strip().lower())
    return len(re.findall(rf"(?<!\w){phrase}(?!\w)", text.lower())) == wanted


def validate_forbidden_words(text: str, forbidden_words: Any) -> bool:
    """None of the words occurs, case ignored."""
    lower = text.lower()
    return not any(word.lower() in lower for word in _phrases(forbidden_words, "forbidden_words"))


def verify_letter_frequency(text: str, letter: Any, N: Any) -> bool:
    """The letter occurs exactly N times, case counts."""
    if not isinstance(letter, str) or len(letter) != 1 or not letter.isalpha():
        raise RowFault(f"argument letter must be one letter, got {letter!r:.60}")
    return text.count(letter) == _number(N)


def languages(text: str) -> list[str]:
    """Language codes with their probabilities, the likeliest first; none where no letter stands.

    The seed is set before every call: unseeded, short texts change their language at random.
    """
    try:
        from langdetect import DetectorFactory, LangDetectException, detect_langs
    except ImportError as error:
        raise VerifierFault("langdetect is not installed: pip install langdetect") from error
    DetectorFactory.seed = 0
    try:
        return [str(language) for language in detect_langs(text)]
    except LangDetectException:
        return []


@functools.cache
def known_languages() -> frozenset[str]:
    """The codes that the detector can give, and those without their region: zh-cn, zh."""
    languages("")  # loads the profiles
    from langdetect import detector_factory

    codes = detector_factory._factory.get_lang_list()
    return frozenset(part for code in codes for part in (code, code.split("-")[0]))


def unseeded() -> str:
    """Why the detector cannot be used: its answer on a short text changes. Empty when it holds."""
    answers = {tuple(languages("no te la dico")) for _ in range(8)}
    if len(answers) > 1:
        return f"langdetect ignores its seed: one text gave {len(answers)} answers"
    return ""


def validate_response_language(text: str, language: Any) -> bool:
    """The likeliest language is the one asked for; text without letters is of no language."""
    wanted = _phrase(language, "language").strip().lower()
    if wanted not in known_languages():
        raise RowFault(f"argument language must be one of {sorted(known_languages())}: {wanted!r}")
    found = languages(text)
    code = found[0].split(":")[0] if found else ""
    return wanted in (code, code.split("-")[0])


def verify_paragraph_count(text: str, N: Any) -> bool:
    """Cut at the divider `***`, the text has exactly N non-empty parts."""
    parts = re.split(r"\*\*\*|\* \* \*", text)
    return sum(1 for part in parts if part.strip()) == _number(N)


def validate_word_constraint(text: str, N: Any, quantifier: Any) -> bool:
    """At least / at most / around (within a tenth) N words."""
    wanted = _number(N)
    return _quantity(len(text.split()), wanted, quantifier, max(round(wanted * 0.1), 1))


def verify_sentence_constraint(text: str, N: Any, quantifier: Any) -> bool:
    """At least / at most / around (within one) N sentences."""
    count = sum(1 for part in _SENTENCE_END.split(text) if part.strip())
    return _quantity(count, _number(N), quantifier, 1)


def validate_paragraphs(text: str, N: Any, first_word: Any, i: Any) -> bool:
    """N paragraphs apart by two line breaks; the i-th starts with the word."""
    wanted, index, word = _number(N), _number(i, "i"), _phrase(first_word, "first_word")
    if not 1 <= index <= wanted:
        raise RowFault(f"argument i must be from 1 to N = {wanted}, got {index}")
    paragraphs = text.split("\n\n")
    if len(paragraphs) != wanted:
        return False
    return paragraphs[index - 1].strip().startswith(word)


def verify_postscript(text: str, postscript_marker: Any) -> bool:
    """The marker occurs and something stands behind it."""
    marker = _phrase(postscript_marker, "postscript_marker").strip()
    at = text.find(marker)
    return at >= 0 and bool(text[at + len(marker) :].strip())


def validate_placeholders(text: str, N: Any) -> bool:
    """At least N placeholders in square brackets."""
    return len(re.findall(r"\[[^\[\]\n]*\]", text)) >= _number(N)


def verify_bullet_points(text: str, N: Any) -> bool:
    """Exactly N lines that start with a markdown bullet; a divider or bold text is none."""
    return len(re.findall(r"^[ \t]*+[*-][ \t]++(?![*\- \t]*+$)", text, re.MULTILINE)) == _number(N)


def validate_title(text: str) -> bool:
    """A title in double angular brackets."""
    return any(title.strip() for title in re.findall(r"<<([^<>\n]*)>>", text))


def validate_choice(text: str, options: Any) -> bool:
    """One of the options occurs as a whole."""
    return any(
        re.search(rf"(?<!\w){re.escape(option.strip())}(?!\w)", text)
        for option in _phrases(options, "options")
    )


def validate_highlighted_sections(text: str, N: Any) -> bool:
    """At least N sections highlighted with one or two asterisks."""
    found = re.findall(r"\*\*([^*\n]+)\*\*|\*([^*\n]+)\*", text)
    return sum(1 for a, b in found if a.strip() or b.strip()) >= _number(N)


def validate_sections(text: str, N: Any, section_splitter: Any) -> bool:
    """At least N sections, each begun by the splitter and a number: `Section 1`."""
    splitter = re.escape(_phrase(section_splitter, "section_splitter").strip())
    found = re.findall(rf"(?<!\w){splitter}\s?\d+", text, re.IGNORECASE)
    return len(found) >= _number(N)


def validate_json_format(text: str) -> bool:
    """The whole text is valid JSON."""
    try:
        strict_json.loads(text)
    except strict_json.InvalidJson:
        return False
    return True


def validate_repeat_prompt(text: str, original_prompt: Any) -> bool:
    """The text starts with the prompt, unchanged, and an answer follows."""
    prompt = _phrase(original_prompt, "original_prompt").strip()
    return text.startswith(prompt) and bool(text[len(prompt) :].strip())


def validate_two_responses(text: str) -> bool:
    """Two different responses apart by exactly one `******`."""
    parts = [part.strip() for part in text.split("******")]
    return len(parts) == 2 and all(parts) and parts[0] != parts[1]


def validate_uppercase(text: str) -> bool:
    """No lower-case letter."""
    return not any(char.islower() for char in text)


def validate_lowercase(text: str) -> bool:
    """No upper-case letter."""
    return not any(char.isupper() for char in text)


def validate_frequency_capital_words(text: str, N: Any, quantifier: Any) -> bool:
    """At least / at most / around (within a tenth) N words of capital letters only."""
    wanted = _number(N)
    words = [word for word in re.findall(r"\b[^\W\d_]+\b", text) if word.isupper()]
    return _quantity(len(words), wanted, quantifier, max(round(wanted * 0.1), 1))


def validate_end(text: str, end_phrase: Any) -> bool:
    """The text ends with exactly this phrase."""
    return text.endswith(_phrase(end_phrase, "end_phrase").strip())


def validate_quotation(text: str) -> bool:
    """The whole text stands in double quotation marks."""
    return len(text) >= 2 and text.startswith('"') and text.endswith('"')


def validate_no_commas(text: str) -> bool:
    """No comma."""
    return "," not in text


FUNCTIONS: dict[str, Callable[..., bool]] = {
    function.__name__: function
    for function in (
        verify_keywords,
        verify_keyword_frequency,
        validate_forbidden_words,
        verify_letter_frequency,
        validate_response_language,
        verify_paragraph_count,
        validate_word_constraint,
        verify_sentence_constraint,
        validate_paragraphs,
        verify_postscript,
        validate_placeholders,
        verify_bullet_points,
        validate_title,
        validate_choice,
        validate_highlighted_sections,
        validate_sections,
        validate_json_format,
        validate_repeat_prompt,
        validate_two_responses,
        validate_uppercase,
        validate_lowercase,
        validate_frequency_capital_words,
        validate_end,
        validate_quotation,
        validate_no_commas,
    )
}
