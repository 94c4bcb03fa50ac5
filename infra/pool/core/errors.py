"""Faults of what the pool's core is given."""


class CoreError(Exception):
    """Base class; the same input fails again."""

    retryable = False


class BadRequirement(CoreError, ValueError):
    """A requirement that is not of the language."""


class BadTopology(CoreError, ValueError):
    """A topology that names no shape of group."""


class BadTask(CoreError, ValueError):
    """A task that cannot be scheduled as it is."""


class UnknownNode(CoreError, KeyError):
    """An event of a node that never registered."""


class UnknownTask(CoreError, KeyError):
    """An event about a task that is not there."""
