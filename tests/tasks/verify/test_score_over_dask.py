"""Scores over a real local cluster: order, hostile rows, workers that die."""

import os
import signal

import pytest

from tasks.verify.cluster import dask_client
from tasks.verify.config import VerifyConfig
from tasks.verify.score import score_over_dask


@pytest.fixture(scope="module")
def client():
    with dask_client(VerifyConfig(workers=1)) as started:
        yield started


def math(answer: str, truth: str = "7") -> dict:
    return {
        "task_type": "verifiable_math",
        "completion": f"<think>x</think>\\boxed{{{answer}}}",
        "verification_info": f'{{"ground_truth": "{truth}"}}',
    }


def test_scores_keep_the_order_of_the_rows(client):
    scores = score_over_dask([math(str(n)) for n in range(20)], client, batch_rows=3)
    assert [score["score"] for score in scores] == [1.0 if n == 7 else 0.0 for n in range(20)]


def test_faults_of_rows_are_null_and_faults_of_answers_zero(client):
    rows = [
        math("7"),
        math("7", ""),
        {"task_type": "nobody_knows", "completion": "x", "verification_info": "{}"},
        math("9^{9^{9^{9^9}}}"),
    ]
    scores = score_over_dask(rows, client, batch_rows=4)
    assert [score["score"] for score in scores] == [1.0, None, None, 0.0]
    assert [score["status"] for score in scores[:3]] == ["ok", "unverifiable", "unverifiable"]


def test_a_worker_that_dies_loses_no_row(client):
    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    client.submit(die, retries=0, pure=False)
    scores = score_over_dask([math(str(n)) for n in range(8)], client, batch_rows=2)
    assert [score["score"] for score in scores] == [0.0] * 7 + [1.0]


def test_no_rows_give_no_scores(client):
    assert score_over_dask([], client, batch_rows=4) == []


def test_verifier_processes_stay_warm_between_batches(client):
    score_over_dask([math("7")] * 4, client, batch_rows=2)
    before = client.run(_verifier_processes)
    score_over_dask([math("7")] * 4, client, batch_rows=2)
    assert client.run(_verifier_processes) == before


def _verifier_processes() -> list[int]:
    import psutil

    return sorted(child.pid for child in psutil.Process().children(recursive=True))
