"""From judged answers to what is trained: through rewards, a committed file and the selection."""

import json

import pytest

from data_contracts import rollouts as contract
from data_contracts.text import table_from_rows
from infra.storage import Store
from infra.storage.shards import commit_table
from tasks.train.objective import LengthConfig, ObjectiveConfig
from tasks.train.rollouts.rewards import rewarded
from tasks.train.rounds.batch import StepBatch
from tasks.train.rounds.config import RoundsConfig
from tasks.train.rounds.selection import Rollouts, figures, record, rows_of, samples_of
from tasks.train.trainer.errors import NothingToTrain
from tests.tasks.train.trainer.helpers import new_trainer

MAX_TOKENS = 20
END = 257
OBJECTIVE = ObjectiveConfig(advantage="std")
TASK = "0" * 32
KINDS = {TASK: "reverse_text"}
ANSWERS = {TASK: json.dumps({"ground_truth": "pmal"})}
MASK = LengthConfig(overlong="mask")
PENALTY = LengthConfig(overlong="penalty", overlong_cache=4)


def answer(group, number, right, tokens=10, cut=False, version=1):
    """One row as it is judged; `cut` ends at the limit."""
    ids = [5] * (MAX_TOKENS if cut else tokens - 1) + ([] if cut else [END])
    return {
        "input_tokens": [3, 4, 5],
        "output_tokens": ids,
        "output_logprobs": [-1.0] * len(ids),
        "prompt": "Spell backward: lamp",
        "problem_id": "lamp",
        "completion": f"<think></think><answer>{'pmal' if right else 'zzzz'}</answer>",
        "proofs": b"",
        "step": version,
        "target_lengths": -1,
        "task_type": "reverse_text",
        "seed": 1,
        "temperature": 1.0,
        "sample_id": f"{group:016x}{number:016x}",
        "task_id": TASK,
        "rollout_step": 3,
        "group": group,
        "sample_index": number,
        "model": "policy",
        "model_revision": "r",
        "sampling": "{}",
        "status": "ok",
        "finish_reason": "length" if cut else "stop",
        "error": None,
        "engine": "e",
        "node_id": "n",
        "transcript_hash": b"",
        "signature": b"",
        "seconds": 1.0,
        "input_logprobs": None,
    }


@pytest.fixture
def chosen(tmp_path):
    """`chosen(answers, lengths)`: the committed file of judged answers."""

    def commit(answers, lengths, errored=0):
        judged = rewarded(answers, ANSWERS, lengths, OBJECTIVE, MAX_TOKENS)
        rows = [row | ours for row, ours in zip(answers, judged, strict=True)]
        store = Store(str(tmp_path))
        table = table_from_rows(rows, contract.SCHEMA)
        commit_table(store, "file", table, schema=contract.SCHEMA, producer="test")
        return Rollouts(0, "file", "0" * 64, rows_of(store, "file", lengths), errored)

    return commit


ALL_CUT = [answer(0, 0, True, cut=True), answer(0, 1, False, cut=True)]
ONE_CUT = [answer(1, 0, True), answer(1, 1, False, cut=True)]
SOLVED = [answer(2, 0, True), answer(2, 1, True)]


def test_a_group_of_which_all_samples_are_masked_teaches_nothing(chosen):
    file = chosen(ALL_CUT + ONE_CUT + SOLVED, MASK)
    assert file.useful == 1
    samples = samples_of([file], KINDS)
    # the cut one carries no loss, but its reward is in the statistics of the group
    assert [(s.sample_id[-1], s.trainable) for s in samples] == [("0", True), ("1", False)]
    assert [s.advantage for s in samples] == pytest.approx([2**-0.5, -(2**-0.5)])
    assert {s.kind for s in samples} == {"reverse_text"}
    assert new_trainer().train_step(samples)["data/trainable"] == 1


def test_a_group_whose_uncut_samples_are_as_good_as_its_mean_teaches_nothing(chosen):
    answers = [
        answer(0, 0, True, tokens=18),
        answer(0, 1, True, cut=True),
        answer(0, 2, False, cut=True),
        answer(0, 3, True, tokens=18),
    ]
    rows = chosen(answers, MASK).rows
    for row in rows:  # an advantage of exactly 0 at both uncut samples
        row["advantages"] = 0.0 if row["trainable"] else row["advantages"]
    assert Rollouts(0, "file", "", rows, 0).useful == 0


def test_a_step_of_masked_groups_is_not_full_and_asks_for_more(chosen):
    config = RoundsConfig(groups_per_job=2, groups_per_step=1, max_jobs_per_step=3)
    batch = StepBatch(1, config)
    batch.to_issue()
    file = chosen(ALL_CUT + SOLVED, MASK)
    batch.accept(0, file.useful)
    assert batch.selected() is None
    assert batch.to_issue()
    # had it been chosen, the trainer could not have made a step of it, however often it started
    with pytest.raises(NothingToTrain):
        new_trainer().train_step(samples_of([file], KINDS))


def test_cut_samples_train_as_any_other_where_they_are_kept(chosen):
    file = chosen(ALL_CUT, LengthConfig())
    assert file.useful == 1
    assert [sample.trainable for sample in samples_of([file], KINDS)] == [True, True]


def test_the_soft_penalty_reaches_the_rewards(chosen):
    lengths = [15, 16, 18, 20]
    answers = [answer(0, at, True, tokens) for at, tokens in enumerate(lengths)]
    file = chosen(answers, PENALTY)
    assert [row["rewards"] for row in file.rows] == [1.0, 1.0, 0.5, 0.0]
    assert [row["task_rewards"] for row in file.rows] == [1.0] * 4
    assert file.useful == 1


def test_the_end_token_is_trained_and_nothing_behind_it(chosen):
    """The padding token may be an end token: what carries loss comes from lengths alone."""
    (sample, other) = samples_of([chosen([answer(0, 0, True, 4), answer(0, 1, False, 9)], MASK)],
                                 KINDS)  # fmt: skip
    assert sample.output_ids == (5, 5, 5, END)
    rows = new_trainer()._mini_batch([sample, other]).rows
    (row,) = rows
    assert row.mask.tolist() == [True] * 13
    assert row.targets.tolist() == [*sample.output_ids, *other.output_ids]


def test_what_is_reported_of_a_step(chosen):
    answers = [
        answer(0, 0, True, cut=True),
        answer(0, 1, False, 10, version=0),
        answer(1, 0, True, 6),
        answer(1, 1, True, 4),
    ]
    file = chosen(answers, LengthConfig(), errored=1)
    found = figures(3, [file], KINDS)
    assert found == {
        "off_policy/mean": 1.25, "off_policy/max": 2.0,
        "errored_rollouts": 0.2, "empty_rollouts": 0.0,
        **{f"seq_len/{kind}/mean": 10.0 for kind in ("reverse_text", "all")},
        **{f"is_truncated/{kind}/mean": 0.25 for kind in ("reverse_text", "all")},
        **{f"reward/{kind}/mean": 0.75 for kind in ("reverse_text", "all")},
        **{f"task_reward/{kind}/mean": 0.75 for kind in ("reverse_text", "all")},
    }  # fmt: skip
    made = record(3, [file], KINDS)
    assert (made["groups"], made["useful_groups"], made["cut"]) == (2, 1, 1)
    assert made["staleness"] == {"1": 3, "2": 1}


def test_truncation_is_one_mark_for_each_rollout(chosen):
    file = chosen(ALL_CUT + ONE_CUT, MASK)
    assert [row["trainable"] for row in file.rows] == [False, False, True, False]
    assert figures(3, [file], KINDS)["is_truncated/all/mean"] == 0.75
