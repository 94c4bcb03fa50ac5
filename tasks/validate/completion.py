"""Whether the text of a row is that of its tokens.

The text is neither signed nor proven: a run makes it itself from the tokens, and a file from
elsewhere is believed only where it has the very text that a run would have made.
"""

import json
from collections.abc import Mapping
from typing import Any

from infra.inference.prompts import ChatTokenizer
from tasks.generate.ingest import completion_text


def completion_problems(row: Mapping[str, Any], tokenizer: ChatTokenizer) -> list[str]:
    """Why the `completion` of a row of the traces table is not its tokens' text; empty if it is."""
    ids, expected = row["output_ids"], ""
    if ids:
        stop = json.loads(row["sampling"])["stop"]
        try:
            expected = completion_text(tokenizer, row["prompt_ids"], ids, stop)
        except OverflowError:
            return ["bad_tokens: a token id is none that any tokenizer has"]
    if row["completion"] == expected:
        return []
    said = row["completion"][:40]
    return [f"other_completion: its text is {said!r}, its tokens say {expected[:40]!r}"]
