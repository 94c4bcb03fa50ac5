"""Errors of contracts. None is worth a retry: the same data fails the same way."""

from __future__ import annotations


class ContractError(Exception):
    """Base of everything that this package raises."""

    retryable: bool = False


class BadValue(ContractError, ValueError):
    """A value that cannot be part of an id or of a table."""


class BadRow(ContractError, ValueError):
    """A row whose keys or values do not fit the schema."""


class TableBlocked(ContractError):
    """A blocked table was about to be used as if only rows of it were bad."""


class ExpectationFault(ContractError):
    """The checking machinery failed: it says nothing about the data."""
