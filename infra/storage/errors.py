"""Errors of storage. `retryable` says whether the same call may succeed later by itself."""

from __future__ import annotations


class StorageError(Exception):
    """Base of everything that storage raises."""

    retryable: bool = False


class BadPath(StorageError, ValueError):
    """A root, path, run id or path segment that is not allowed."""


class NotFound(StorageError):
    """No such object."""


class AlreadyExists(StorageError):
    """An object that may only be created is there already."""


class AccessDenied(StorageError):
    """The store is there and says no."""


class StoreUnavailable(StorageError):
    """The store did not answer as a store should: network, disk, server."""

    retryable = True


class SchemaMismatch(StorageError, ValueError):
    """A table that does not fit the schema it is to be committed with."""


class NotCommitted(StorageError):
    """No manifest: the shard does not exist, whatever files lie there."""


class CorruptShard(StorageError):
    """Data that differ from their manifest, or a manifest that cannot be read."""


class CommitConflict(StorageError):
    """Another writer committed other content under the same path."""


class CountMismatch(StorageError):
    """Rows in are not rows out plus quarantined: rows were lost or made up."""
