"""The pool's client where the service is not to be believed."""

import pytest

from infra.pool.client import PoolClient
from infra.pool.errors import PoolUnreachable, UnsafeUrl


def test_a_pool_cannot_send_uploads_to_what_speaks_no_tls():
    """Such as a service of this machine that takes a PUT from whoever is on it."""
    client = PoolClient("https://127.0.0.1:1", patience=0.1)
    for url in ("http://127.0.0.1:8500/v1/kv/x", "http://169.254.169.254/latest/api/token"):
        with pytest.raises(UnsafeUrl, match="allowed is https"):
            client.put_file(url, b"", {})
    with pytest.raises(PoolUnreachable):
        client.put_file("https://127.0.0.1:1/x", b"", {})
    client.close()
    plain = PoolClient("http://127.0.0.1:1", patience=0.1)
    with pytest.raises(PoolUnreachable):
        plain.put_file("http://127.0.0.1:1/x", b"", {})
    plain.close()
