"""Uploads by presigned URL to S3, where the service's storage root lies."""

import hashlib
import json
import uuid
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from moto.server import ThreadedMotoServer

from infra.pool.agent.uploads import upload
from infra.pool.client import PoolClient
from infra.pool.ledger import entries
from infra.storage import Store


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    import s3fs

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test-key-id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret-key-0123456789")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    # Clients are cached by their options, and the environment is none of them.
    s3fs.S3FileSystem.clear_instance_cache()
    bucket = f"bucket-{uuid.uuid4().hex[:12]}"
    s3fs.S3FileSystem().mkdir(bucket)
    yield f"s3://{bucket}/some/prefix"
    s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


def test_nodes_upload_to_the_store_itself(another, root):
    service, store = another(root=root), Store(root)
    task = service.task("s3", shards=1)
    node = service.node()
    group = node.group()
    shard = node.shard(group)
    client = PoolClient(service.url, key=node.key)
    data = b"rows" * 1000
    ask = {"file_name": "a", "file_size": len(data), "task_id": task, "shard_id": shard}
    grant = node.ask(
        "POST", "/storage/request-upload", ask | {"sha256": hashlib.sha256(data).hexdigest()}
    )
    url, headers = grant["signed_url"], grant["headers"]
    assert not url.startswith(service.url) and "very-secret" not in json.dumps(grant)
    # S3 itself refuses what differs in these.
    (signed,) = parse_qs(urlsplit(url).query)["X-Amz-SignedHeaders"]
    assert set(signed.split(";")) == {"host", *headers}

    file = upload(client, data, "a", task, shard)
    assert store.read_bytes(file.name) == data
    # Once there, nobody writes it anew; who did not learn that his bytes arrived goes on.
    lies = httpx.put(url, content=b"lies" * 1000, headers=headers)
    assert lies.status_code in (400, 412) and store.read_bytes(file.name) == data
    assert upload(client, data, "a", task, shard) == file
    result = {"group_id": group["group_id"], "files": [file.model_dump()]}
    node.ask("POST", f"/shards/{shard}/result", result)
    (row,) = service.ask("GET", f"/tasks/{task}/results")["results"]
    assert row["state"] == "submitted"
    service.end()
    (entry,) = entries(store)
    assert entry.record.files == {file.name: file.sha256}
    client.close()
