"""Groups over HTTP, against the running service and through its death."""

import pytest
from pipeline import Group, file_of, name_of

from infra.storage import read_table

# The service loads its model in a process of its own, twice.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def rows(planned, generator, shards):
    return read_table(planned, generator.run(shards[0]).path).to_pylist()


def status(service, number: int) -> dict:
    return service.client.get(f"/statusgroup/{name_of(number)}").raise_for_status().json()


def test_groups_are_accepted_named_or_incomplete_and_kill_9_loses_none(
    service, planned, nano, rows
):
    group = Group(planned, nano)
    honest, wrong, other_wrong, short, foreign = range(5)
    bodies = {
        honest: group.upload(rows, honest),
        wrong: group.upload(rows, wrong, wrong_stage=0),
        short: group.upload(rows, short, missing=1),
        foreign: group.upload(rows, foreign),
    }
    bodies[foreign]["file_shas"][0] = "0" * 64

    def trigger(number: int) -> int:
        name = f"/validategroup/{name_of(number)}"
        return service.client.post(name, json=bodies[number]).status_code

    # Not before all stages have uploaded, and under the name of the whole.
    gone = planned.read_bytes(file_of(honest, 1))
    planned.delete(file_of(honest, 1))
    assert trigger(honest) == 404
    planned.write_bytes(file_of(honest, 1), gone)
    wrong_name = service.client.post(f"/validategroup/{file_of(honest, 0)}", json=bodies[honest])
    assert wrong_name.status_code == 422
    assert service.client.get(f"/statusgroup/{name_of(honest)}").status_code == 404

    assert [trigger(number) for number in bodies] == [200] * 4
    service.wait(lambda: "challenge" in status(service, wrong))
    challenge = status(service, wrong)["challenge"]
    assert [one["index"] for one in challenge] == [1] * len(rows)
    # Killed while a stage is being asked for its input and others wait.
    bodies[other_wrong] = group.upload(rows, other_wrong, wrong_stage=1)
    assert trigger(other_wrong) == 200
    service.kill()
    service.start()

    pending = status(service, wrong)
    assert pending["status"] == "pending" and pending["challenge"] == challenge
    for row in rows:
        group.hand_out(wrong, row["trace_id"])
        group.hand_out(other_wrong, row["trace_id"])
    found = {number: service.result(name_of(number), "statusgroup") for number in bodies}
    assert found[honest]["status"] == "accept" and found[honest]["output_flops"] > 0, found
    assert found[honest]["failing_indices"] == []
    for number, stage in ((wrong, 0), (other_wrong, 1), (foreign, 0)):
        assert found[number]["status"] == "reject", found[number]
        assert found[number]["failing_indices"] == [stage], found[number]
    assert "computed_wrongly" in found[wrong]["reason"]
    assert (found[short]["status"], found[short]["failing_indices"]) == ("unknown", [])
    assert "incomplete" in found[short]["reason"]
    # What has its answer is answered at once, and keeps it.
    assert [trigger(number) for number in bodies] == [200] * 5
    assert status(service, wrong) == found[wrong]
