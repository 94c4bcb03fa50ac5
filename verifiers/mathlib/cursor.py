"""A place in a list of tokens, with bounded depth."""

from verifiers.mathlib.errors import Unparsable
from verifiers.mathlib.tokens import Token

MAX_DEPTH = 60
_END = Token("end")


class Cursor:
    """Reading tokens one by one."""

    def __init__(self, tokens: list[Token]):
        self._tokens = tokens
        self._at = 0
        self._depth = 0
        self._bars = 0
        self._sets = 0

    @property
    def _next(self) -> Token:
        return self._tokens[self._at] if self._at < len(self._tokens) else _END

    def _peek(self, ahead: int) -> Token:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else _END

    def _take(self, *kinds: str) -> Token:
        token = self._next
        if kinds and token.kind not in kinds:
            raise Unparsable(
                f"found {token.kind} {token.value[:20]}, expected {' or '.join(kinds)}"
            )
        self._at += 1
        return token

    def _accept(self, *kinds: str) -> bool:
        if self._next.kind in kinds:
            self._at += 1
            return True
        return False
