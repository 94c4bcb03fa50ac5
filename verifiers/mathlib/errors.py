"""Why a mathematical text gives no value."""

from verifiers.errors import VerifiersError


class Unparsable(VerifiersError):
    """The text does not parse completely."""


class TooLarge(VerifiersError):
    """A number in the text is too large to be computed (a tower of powers)."""
