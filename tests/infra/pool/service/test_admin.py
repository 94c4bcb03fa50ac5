"""What the operator sees and does, on the running service."""

import threading

NAMES = """compute_gauges task_info orchestrator_file_upload_requests_total orchestrator_nodes_total
orchestrator_tasks_total orchestrator_groups_total orchestrator_heartbeat_requests_total
orchestrator_nodes_per_task orchestrator_task_state
orchestrator_status_update_execution_time_seconds_bucket"""


def test_nodes_groups_and_figures(service):
    plugins = {"node_groups": {"allowed_topologies": ["1x24GB"]}}
    task = service.task(
        "figures",
        scheduling_config={"plugins": plugins},
        metadata={"labels": {"model": "m", "data": "d"}},
    )
    specs = {"gpu": {"count": 1, "model": "RTX 4090", "memory_mb": 24_000}}
    node = service.node(compute_specs=specs, location={"latitude": 50.1, "longitude": 8.7})
    group = node.group()
    ask = {"file_name": "x", "file_size": 1, "sha256": "0" * 64, "task_id": task}
    node.ask("POST", "/storage/request-upload", ask)
    metrics = [
        {"key": {"task_id": task, "label": "system/cpu:percent"}, "value": 5.0},
        {"key": {"task_id": "", "label": "dashboard-progress/a"}, "value": 7.0},
        {"key": {"task_id": "", "label": "dashboard-progress/a"}, "value": 6.0},
    ]
    node.beat(metrics=metrics, task_id=task, task_state="RUNNING")
    found = service.ask("GET", f"/nodes/{node.id}/metrics")["metrics"]
    assert found == {task: {"system/cpupercent": 5.0}, "manual": {"dashboard-progress/a": 7.0}}

    text = service.admin("GET", "/metrics/prometheus").text
    for name in NAMES.split():
        assert f"\n{name}{{" in text, name
    assert f'metadata="data=d,model=m",pool_id="tracemill",task_id="{task}"' in text

    listed = service.ask("GET", "/nodes")
    view = next(view for view in listed["nodes"] if view["address"] == node.id)
    assert listed["counts"]["Healthy"] >= 1
    assert (view["status"], view["group"]["id"]) == ("Healthy", group["group_id"])
    assert view["compute_specs"]["gpu"]["count"] == 1 and view["location"]["latitude"] == 50.1
    configs = service.ask("GET", "/groups/configs")["configurations"]
    assert {"name": "1x24GB", "min_group_size": 1, "max_group_size": 1, "enabled": True,
            "compute_requirements": "gpu:total_memory_min=24000"} in configs  # fmt: skip
    groups = service.ask("GET", "/groups")["groups"]
    assert [g["nodes"] for g in groups if g["id"] == group["group_id"]] == [[node.id]]

    body = {"configuration_name": "1x24GB"}
    regrouped = service.ask("POST", "/groups/force-regroup", body)
    assert regrouped["dissolved_groups"] == [group["group_id"]]
    assert regrouped["affected_nodes"] == [node.id]
    service.ask("POST", "/groups/force-regroup", {"configuration_name": "none"}, status=404)
    again = node.group()
    service.ask("DELETE", f"/groups/{again['group_id']}")
    service.ask("DELETE", f"/groups/{again['group_id']}", status=404)
    service.ask("POST", f"/nodes/{node.id}/eject")
    states = {v["address"]: v["status"] for v in service.ask("GET", "/nodes")["nodes"]}
    assert states[node.id] == "Ejected"
    assert service.ask("GET", f"/nodes/{node.id}/metrics")["metrics"] == {}


def test_orders(service):
    """Logs and restart are asked for with the heartbeat."""
    node = service.node()
    node.beat()
    answers = []
    asking = threading.Thread(
        target=lambda: answers.append(service.ask("GET", f"/nodes/{node.id}/logs"))
    )
    asking.start()
    (order,) = node.wait("orders")["orders"]
    assert order["kind"] == "logs"
    node.ask("POST", f"/nodes/orders/{order['order_id']}", {"text": "all is well"})
    asking.join()
    assert answers == [{"success": True, "logs": "all is well"}]
    assert node.beat()["orders"] == []


def test_invites(service):
    before = {row["invite_id"] for row in service.ask("GET", "/invites")["invites"]}
    made = service.ask("POST", "/invites", {"uses": 2, "label": "lab", "trusted": True})
    listed = service.ask("GET", "/invites")["invites"]
    (row,) = [row for row in listed if row["invite_id"] not in before]
    assert (row["label"], row["uses_left"], row["trusted"]) == ("lab", 2, True)
    assert made["invite"] not in service.admin("GET", "/invites").text
    service.ask("DELETE", f"/invites/{made['invite_id']}")
    assert {row["invite_id"] for row in service.ask("GET", "/invites")["invites"]} == before


def test_a_refused_result_bans_the_guilty(service):
    service.task("lies", shards=1)
    node, other = service.node(), service.node()
    group = node.group()
    shard = node.shard(group)
    node.ask("POST", f"/shards/{shard}/result", {"group_id": group["group_id"]})
    verdict = {"group_id": group["group_id"], "accepted": False, "hard": True,
               "guilty": [node.id], "reason": "proofs of another model"}  # fmt: skip
    service.ask("POST", f"/shards/{shard}/verdict", verdict)
    assert node.request("POST", "/heartbeat", {"address": node.id}).status_code == 403
    assert other.shard(other.group()) == shard, "another node gets it"


def test_failures_are_told_apart(service):
    task = service.task("failing", shards=1)
    node = service.node()
    group = node.group()
    for _ in range(3):
        shard = node.shard(group)
        body = {"group_id": group["group_id"], "cause": "user", "reason": "bad prompt"}
        node.ask("POST", f"/shards/{shard}/failure", body)
    rows = service.ask("GET", f"/tasks/{task}/results?wait_seconds=10")["results"]
    assert [(row["state"], row["reason"]) for row in rows] == [("failed", "user: bad prompt")]
