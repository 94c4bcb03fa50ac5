"""Conditional writes and error translation for object stores behind fsspec (s3, memory).

Invariants: one put makes the object visible as a whole; creation is conditional (S3:
If-None-Match), so 412 means that it exists and 409 that another creation is under way and the
put is tried again. Error texts carry no credentials: they come from the environment, and what a
server or a library says is redacted before it is shown.
"""

from __future__ import annotations

import os
import random
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from infra.storage.errors import (
    AccessDenied,
    AlreadyExists,
    NotFound,
    StorageError,
    StoreUnavailable,
)

MEMORY_LOCK = threading.RLock()
"""The memory file system is one dictionary per process without atomic creation."""

_CONFLICT_TRIES = 6
_EXISTS_CODES = frozenset({"PreconditionFailed", "412"})
_CONFLICT_CODES = frozenset({"ConditionalRequestConflict", "OperationAborted", "409"})
_SECRET_NAME = re.compile(r"(SECRET|TOKEN|PASSWORD|KEY)", re.IGNORECASE)
_SIGNED = re.compile(
    r"(?i)(X-Amz-[A-Za-z-]+|AWSAccessKeyId|Signature|Credential)(=|%3D|: ?)[^&\s,'\"<>]+"
)
_USERINFO = re.compile(r"(?<=://)[^/@\s]+@")


def redact(text: str) -> str:
    """`text` without signatures, user info in URLs and values of secret environment variables."""
    for name, value in os.environ.items():
        if name.startswith(("AWS_", "FSSPEC_")) and len(value) >= 6 and _SECRET_NAME.search(name):
            text = text.replace(value, "***")
    return _USERINFO.sub("***@", _SIGNED.sub(r"\1\2***", text))


@contextmanager
def translated(action: str, shown: str) -> Iterator[None]:
    """Turn what a file system or client library raises into storage errors.

    The chain is cut: the original may quote request headers.
    """
    try:
        yield
    except StorageError:
        raise
    except FileExistsError:
        raise AlreadyExists(
            f"{action} {shown}: it exists already and is only ever created once; read it, or "
            "write it with overwrite=True if it is not a committed object"
        ) from None
    except FileNotFoundError:
        raise NotFound(
            f"{action} {shown}: no such object. Check the root and the run id, or run the stage "
            "that writes it"
        ) from None
    except PermissionError as error:
        raise AccessDenied(
            f"{action} {shown} is not allowed: {_said(error)}. Check the rights of this user, or "
            "the credentials in the environment"
        ) from None
    except Exception as error:
        raise StoreUnavailable(
            f"{action} {shown} failed: {_said(error)}. Check the disk, or that the store is "
            "reachable with the endpoint and credentials in the environment"
        ) from None


def put(fs: Any, full_path: str, data: bytes, *, overwrite: bool) -> None:
    """Write one object; FileExistsError if it is there and `overwrite` is false."""
    if overwrite:
        _put(fs, full_path, data, "overwrite")
        return
    for attempt in range(_CONFLICT_TRIES):
        try:
            _put(fs, full_path, data, "create")
            return
        except FileExistsError:
            raise
        except OSError as error:
            code = error_code(error)
            if code in _EXISTS_CODES:
                raise FileExistsError(full_path) from error
            if code not in _CONFLICT_CODES:
                raise
        time.sleep(random.uniform(0.5, 1.0) * min(0.1 * 2**attempt, 2.0))
    raise StoreUnavailable(
        f"creating {full_path}: the store reported a conflicting write {_CONFLICT_TRIES} times "
        "(HTTP 409). Another writer holds the same object; try again later"
    )


def _put(fs: Any, full_path: str, data: bytes, mode: str) -> None:
    if "memory" in fs.protocol:
        with MEMORY_LOCK:
            fs.pipe_file(full_path, data, mode=mode)
    else:
        fs.pipe_file(full_path, data, mode=mode)


def error_code(error: BaseException) -> str:
    """The S3 error code behind an exception of s3fs, or an empty text."""
    cause: BaseException | None = error
    while cause is not None:
        response = getattr(cause, "response", None)
        if isinstance(response, dict):
            return str(response.get("Error", {}).get("Code", ""))
        cause = cause.__cause__
    return ""


def _said(error: BaseException) -> str:
    return f"{type(error).__name__} {error_code(error)}".strip() + f": {redact(str(error))[:500]}"
