"""The task of the SYNTHETIC-2 post, as the node of a group gets it."""

import json
import re
from pathlib import Path

import pytest

POST = json.loads((Path(__file__).parent.parent / "data" / "synthetic2_task.json").read_text())
H200 = {"gpu": {"count": 8, "model": "NVIDIA H200", "memory_mb": 141_000}}
SMALLER = {"gpu": {"count": 8, "model": "NVIDIA H100", "memory_mb": 80_000}}


@pytest.mark.parametrize("topologies", [["1x1128GB"], ["1x1128GB", "2x640GB"]])
def test_the_posted_task(service, topologies):
    post = POST | {"name": f"{POST['name']} {len(topologies)}"}
    plugins = {"node_groups": {"allowed_topologies": topologies}}
    post["scheduling_config"] = {"plugins": plugins}
    created = service.ask("POST", "/tasks", post)["task"]
    for key, value in POST.items():
        if key not in ("name", "scheduling_config"):
            assert created[key] == value
    size = 1 if len(topologies) == 1 else 2
    nodes = [service.node(compute_specs=H200 if size == 1 else SMALLER) for _ in range(size)]
    for node in nodes:
        node.beat()
    told = {}
    for node in nodes:
        group = node.group()
        told[group["index"]] = (node, group, node.beat()["current_task"])
    assert sorted(told) == list(range(size))
    for index, (node, group, task) in told.items():
        following = told[(index + 1) % size][0]
        arguments = dict(zip(task["cmd"][4::2], task["cmd"][5::2], strict=True))
        assert arguments["--parallel.pp.rank"] == str(index)
        assert arguments["--parallel.pp.world-size"] == str(size)
        assert arguments["--parallel.pp.iroh-seed"] == "${WORKER_P2P_SEED}"
        assert arguments["--parallel.pp.iroh-peer-id"] == f"p2p-{following.id[:6]}"
        assert arguments["--group-id"] == group["group_id"]
        assert arguments["--task-id"] == created["id"]
        assert task["env_vars"] == POST["env_vars"] | {"GROUP_INDEX": str(index)}
        mount = f"/group-{group['group_id']}-state"
        assert task["volume_mounts"] == [{"host_path": mount, "container_path": "/state"}]
        # Word for word the same at the next heartbeat, or the container would start again.
        assert node.beat()["current_task"] == task
        ask = {"file_name": "x", "file_size": 1, "sha256": "0" * 64, "task_id": created["id"]}
        names = [
            node.ask("POST", "/storage/request-upload", ask | {"file_name": name})["file_name"]
            for name in ("a.parquet", "b.parquet", "a.parquet")
        ]
        start = "uploads/deepseek-ai/DeepSeek-R1-0528/PrimeIntellect/SYNTHETIC-2-Base-R1-SFT"
        stem = f"{start}/1-{group['group_id']}-{size}"
        assert names == [f"{stem}-{number}-{index}.parquet" for number in (0, 1, 0)]
    service.ask("DELETE", f"/tasks/{created['id']}")
    assert nodes[0].beat()["current_task"] is None


def test_openapi_names_every_route_and_model(service):
    text = service.http.get("/api-docs/openapi.json").text
    found = json.loads(text)
    for path in ("/heartbeat", "/nodes", "/tasks", "/groups/force-regroup", "/ledger"):
        assert path in found["paths"]
    known = found["components"]["schemas"]
    named = {reference.rsplit("/", 1)[1] for reference in re.findall(r'"\$ref": ?"([^"]+)"', text)}
    assert named and named <= set(known) and "Heartbeat" in named
    assert service.http.get("/docs").status_code == 200
