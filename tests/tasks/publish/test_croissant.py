"""croissant.json names each file with its hash and each column once."""

import hashlib
import json

from tasks.publish import CONFIGS


def test_files_and_columns(finished):
    run, published = finished
    store = run.store
    document = json.loads(store.read_bytes(f"{published.path}/croissant.json"))
    objects = [node for node in document["distribution"] if node["@type"] == "cr:FileObject"]
    parquet = [path for path in store.list(published.path) if path.endswith(".parquet")]
    assert len(objects) == len(parquet)
    for node in objects:
        data = store.read_bytes(f"{published.path}/{node['contentUrl']}")
        assert hashlib.sha256(data).hexdigest() == node["sha256"]
    sets = {node["@id"] for node in document["distribution"] if node["@type"] == "cr:FileSet"}
    assert [record["name"] for record in document["recordSet"]] == list(CONFIGS)
    for record in document["recordSet"]:
        assert all(field["source"]["fileSet"]["@id"] in sets for field in record["field"])
        ids = [field["@id"] for field in record["field"]]
        assert len(ids) == len(set(ids)) > 5
