"""Difficulty waits for every annotator's shard."""

from types import SimpleNamespace

import flows.run as run_module
from flows.shards import Missing
from infra.storage import Store


def test_a_missing_annotator_shard_keeps_difficulty_and_teacher_waiting(monkeypatch, tmp_path):
    lost = [Missing("generate", "m", "s", "the node died")]
    phases = []

    def phase(shared, name, tasks):
        phases.append(name)
        return lost

    monkeypatch.setattr(run_module, "_phase", phase)
    monkeypatch.setattr(run_module, "plan_tasks", lambda table: [])
    monkeypatch.setattr(run_module, "read_table", lambda *args, **kwargs: None)
    monkeypatch.setattr(run_module, "annotate", lambda *args: phases.append("annotate"))
    run = SimpleNamespace(store=Store(str(tmp_path)), layout=SimpleNamespace(tasks="t"))
    assert run_module.answer_tasks(SimpleNamespace(run=run)) == lost
    assert phases == ["annotators"]
