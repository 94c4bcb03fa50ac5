from tasks.collect.config import MakerSource, ReasoningGymSource
from tasks.collect.rows import Bad, Raw, to_task
from tasks.collect.sources import read
from tasks.collect.sources.worked import with_examples


def raw(prompt: str, gold: str | None = "g") -> Raw:
    return Raw({"prompt": prompt, "gold": gold}, "test")


def test_questions_come_after_the_same_solved_rows():
    rows = [raw("q1"), raw("q2"), raw("e1", "one"), raw("e2", "two"), raw("e3", "three")]
    found = list(with_examples(rows, 2, 2))
    turns = [
        {"role": "user", "content": "e1"},
        {"role": "assistant", "content": "one"},
        {"role": "user", "content": "e2"},
        {"role": "assistant", "content": "two"},
    ]
    assert [row.row["prompt"] for row in found] == [
        [*turns, {"role": "user", "content": question}] for question in ("q1", "q2")
    ]


def test_an_example_is_never_a_question_and_always_has_an_answer():
    bad = Bad({"prompt": "broken"}, "why", "test")
    rows = [raw("q1"), bad, raw("q1", "given away"), raw("e0", None), bad, raw("e1", "one")]
    first, second = with_examples(rows, 2, 1)
    assert [turn["content"] for turn in first.row["prompt"]] == ["e1", "one", "q1"]
    assert second is bad


def test_sources_show_their_own_solved_tasks():
    sources = [
        MakerSource(task_type="complex_json_output", size=3, seed=5, examples=2),
        ReasoningGymSource(generator="letter_counting", size=3, seed=5, examples=2),
    ]
    for source in sources:
        plain = [row.row["prompt"] for row in read(source.model_copy(update={"examples": 0}))]
        rows = list(read(source))
        assert [row.row["prompt"][-1]["content"] for row in rows] == plain
        for row in rows:
            roles = [message["role"] for message in row.row["prompt"]]
            assert roles == ["user", "assistant"] * 2 + ["user"]
            shown = {message["content"] for message in row.row["prompt"][:-1]}
            assert shown.isdisjoint(plain)
            assert len(to_task(row)["prompt"]) == 5
