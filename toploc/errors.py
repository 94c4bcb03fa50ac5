"""Errors of this package.

Every message names what failed, the value received, what is allowed and the next step. All of them
are also `ValueError`s, so that callers of the PyPI package's functions need no new handler.
"""


class ToplocError(ValueError):
    """Base of all errors raised here. None of them goes away by trying again."""

    retryable: bool = False


class MalformedProof(ToplocError):
    """Bytes, text or numbers that are not a proof."""


class ProofCountMismatch(ToplocError):
    """More or fewer proofs than chunks of activations."""


class UnprovableActivations(ToplocError):
    """Activations that no proof can be made of: wrong dtype or shape, too few, not finite."""


class NoInjectiveModulus(ToplocError):
    """No modulus keeps the indices apart."""


class InvalidSettings(ToplocError):
    """Chunk size, number of values, sampling rule or limits out of range."""


class InvalidLogits(ToplocError):
    """Logits that nothing can be sampled from, or tensors whose shapes do not fit together."""


class MalformedKey(ToplocError):
    """Bytes or text that are not a key that can identify a node."""


class MalformedRecord(ToplocError):
    """A group file's name or a stage's record that does not follow the grammar."""


class LinkRefused(ToplocError):
    """A stage does not sign, or does not go on, because the other end of a link does not fit."""


class MalformedProfile(ToplocError):
    """A calibration profile that cannot be read, or honest runs that none can be made of."""
