from infra.pool.agent.identity import key_of_pool, load_key


def test_each_pool_has_a_key_of_its_own(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    here, there = key_of_pool("https://a.example:8480/"), key_of_pool("https://b.example:8480")
    assert load_key(here).node_id != load_key(there).node_id
    assert key_of_pool("https://a.example:8480") == here
