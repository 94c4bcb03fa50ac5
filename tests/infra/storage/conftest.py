"""Stores of every kind: a directory, memory, and S3 behind a real server on loopback."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer

from infra.storage import Store

SECRET = "very-secret-key-0123456789"


@pytest.fixture(scope="package")
def s3_environment() -> Iterator[None]:
    import s3fs

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "test-key-id")
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        # Clients are cached by their options, and the environment is none of them.
        s3fs.S3FileSystem.clear_instance_cache()
        yield
    s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


@pytest.fixture
def s3_root(s3_environment: None) -> str:
    import s3fs

    bucket = f"bucket-{uuid.uuid4().hex[:12]}"
    s3fs.S3FileSystem().mkdir(bucket)
    return f"s3://{bucket}/some/prefix"


@pytest.fixture
def s3_store(s3_root: str) -> Store:
    return Store(s3_root)


@pytest.fixture
def local_store(tmp_path: Path) -> Store:
    return Store(str(tmp_path / "data"))


@pytest.fixture(params=["file", "memory", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "s3":
        made: Store = request.getfixturevalue("s3_store")
        return made
    if request.param == "memory":
        return Store(f"memory://test-{uuid.uuid4().hex}/prefix")
    return Store(str(tmp_path / "data"))
