import random

from hypothesis import given, settings
from hypothesis import strategies as st

from data_contracts import plan as contract
from data_contracts.ids import trace_id, trace_seed
from tasks.generate.config import ModelUse, SamplingConfig
from tasks.generate.plan import PlanTask, plan_phase, shards, spread

TASKS = [PlanTask(f"{n:032x}", f"type{n % 3}", 10 * (n % 7)) for n in range(20)]
USE = ModelUse(model="a/b", samples=3, batch_size=4, batches_per_shard=2)


def planned(tasks=TASKS, use=USE, seed=5, first=0):
    return plan_phase(tasks, [use], {use.model: "rev"}, seed, {use.model: first})


def test_each_trace_stands_in_the_plan_once_with_its_own_seed():
    rows = planned().to_pylist()
    assert len(rows) == 60
    assert len({row["trace_id"] for row in rows}) == 60
    for row in rows:
        expected = trace_id(
            task_id=row["task_id"],
            model="a/b",
            model_revision="rev",
            sampling=SamplingConfig().as_dict(),
            run_seed=5,
            sample_index=row["sample_index"],
        )
        assert row["trace_id"] == expected
        assert row["seed"] == trace_seed(expected)
    report = contract.validate(planned())
    assert report.ok, report


def test_shards_hold_the_planned_batches_with_the_longest_prompts_first():
    found = shards(planned())
    assert [len(shard.rows) for shard in found] == [8, 8, 8, 8, 8, 8, 8, 4]
    assert [len(batch) for batch in found[0].batches()] == [4, 4]
    chars = {task.task_id: task.prompt_chars for task in TASKS}
    order = [chars[row["task_id"]] for shard in found for row in shard.rows]
    assert order == sorted(order, reverse=True)


def test_the_plan_does_not_depend_on_the_order_of_the_tasks():
    shuffled = list(TASKS)
    random.Random(3).shuffle(shuffled)
    assert planned(shuffled).equals(planned())


def test_seed_model_revision_and_sampling_change_every_trace():
    base = {row["trace_id"] for row in planned().to_pylist()}
    hot = USE.model_copy(update={"sampling": SamplingConfig(temperature=0.7)})
    for other in (planned(seed=6), planned(use=hot)):
        assert base.isdisjoint(row["trace_id"] for row in other.to_pylist())


def test_samples_of_a_later_phase_go_on_counting():
    early, late = planned(), planned(first=3)
    pairs = [
        {(row["task_id"], row["sample_index"]) for row in table.to_pylist()}
        for table in (early, late)
    ]
    assert pairs[0].isdisjoint(pairs[1])
    assert {index for _, index in pairs[1]} == {3, 4, 5}


def test_a_limit_is_spread_over_the_task_types():
    chosen = spread(TASKS, 6)
    assert (
        sorted(task.task_type for task in chosen) == ["type0"] * 2 + ["type1"] * 2 + ["type2"] * 2
    )
    assert spread(TASKS, 0) == TASKS
    assert spread(TASKS, 99) == TASKS


@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(1, 30),
    samples=st.integers(1, 4),
    batch=st.integers(1, 9),
    batches=st.integers(1, 3),
    limit=st.integers(0, 40),
)
def test_no_trace_is_lost_or_doubled(count, samples, batch, batches, limit):
    tasks = [PlanTask(f"{n:032x}", f"t{n % 4}", n % 5) for n in range(count)]
    use = ModelUse(
        model="m",
        samples=samples,
        batch_size=batch,
        batches_per_shard=batches,
        max_tasks=limit,
    )
    found = shards(planned(tasks, use))
    traces = [row["trace_id"] for shard in found for row in shard.rows]
    assert len(traces) == len(set(traces)) == samples * (min(limit, count) if limit else count)
    for shard in found:
        assert all(len(group) <= batch for group in shard.batches())
        assert len(shard.batches()) <= batches
        assert [row["position"] for row in shard.rows] == list(range(len(shard.rows)))
