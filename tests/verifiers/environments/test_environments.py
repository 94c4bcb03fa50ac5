"""Real environments on the real library: one single-turn, one with a tool, one hostile.

Slow: the library and all that it needs come from the package index (about 100 wheels, 700 MB) and
take seconds to load.
"""

import json
import shutil
import time
from pathlib import Path

import psutil
import pytest

import verifiers
from verifiers.environments import (
    EnvironmentProcess,
    install,
    play,
    python_of,
    read_lock,
)
from verifiers.environments import episode as episodes
from verifiers.environments.loaded import close_all
from verifiers.errors import EnvironmentBroken
from verifiers.registry import judge_row

pytestmark = [pytest.mark.slow, pytest.mark.network, pytest.mark.timeout(3600)]
LIBRARY = Path(__file__).parent / "data" / "library.lock"


@pytest.fixture(scope="module")
def lock(wheels, lock_text, cache, sandbox_here):
    """Installed once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRACEMILL_CACHE", str(cache))
        made = read_lock(LIBRARY.read_text() + lock_text("tm_sums", "tm_shop", "tm_hostile"))
        install(made, [wheels])
        yield made
        close_all()
        shutil.rmtree(python_of(made.digest).parent.parent)


def opened(lock, name, **args):
    return EnvironmentProcess(python_of(lock.digest), name, args)


def says(*texts):
    """A model that says these texts, one a turn."""
    left = list(texts)
    return lambda messages, tools: {"role": "assistant", "content": left.pop(0)}


def calls(item):
    call = {"id": "c1", "name": "price", "arguments": json.dumps({"item": item})}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


@pytest.fixture(scope="module")
def sums(lock):
    with opened(lock, "tm-sums", count=3) as process:
        yield process


@pytest.fixture(scope="module")
def shop(lock):
    with opened(lock, "tm-shop") as process:
        yield process


def test_single_turn(sums):
    assert (sums.row_count, sums.single_turn, sums.compares_groups) == (3, True, False)
    rows = sums.rows()
    assert [row["answer"] for row in rows] == ["1", "3", "5"]
    assert rows[1]["prompt"][-1] == {"role": "user", "content": "What is 1 + 2?"}
    assert sums.rows(2, 5) == rows[2:] and sums.rows(3, 5) == []
    result = play(sums.episode(rows[1]), says("<answer>3</answer>"))
    assert (result.score, result.turns) == (1.0, 1)
    assert result.metrics["right"] == 1.0 and result.metrics["length"] == 18.0
    assert play(sums.episode(rows[1]), says("<answer>4</answer>")).score == 0.25
    assert play(sums.episode(rows[1]), says("3", "never asked")).score == 0.25


def test_many_episodes_at_once(sums):
    rows = sums.rows()
    talks = [sums.episode(rows[i % 3]) for i in range(9)]
    for i, talk in enumerate(talks):
        assert talk.step({"role": "assistant", "content": f"<answer>{2 * i + 1}</answer>"}) is None
    assert [talk.score().metrics["right"] for talk in talks] == [1.0] * 3 + [0.0] * 6


def test_an_episode_that_is_given_up_ends_alone(sums):
    row = sums.rows()[0]
    kept, given_up = sums.episode(row), sums.episode(row)
    given_up.close()
    kept.step({"role": "assistant", "content": "<answer>1</answer>"})
    assert kept.score().score == 1.0


def test_a_tool_over_several_turns(shop):
    row = shop.rows()[1]
    seen = []

    def model(messages, tools):
        seen.append((messages[-1], [tool["name"] for tool in tools]))
        return calls("pear") if messages[-1]["role"] == "user" else says("They cost 12.")(0, 0)

    result = play(shop.episode(row), model)
    assert (result.score, result.turns, result.stop) == (1.0, 2, "no_tools_called")
    assert result.metrics["price_calls"] == 1.0
    assert seen == [
        ({"role": "user", "content": "What do 3 pears cost?"}, ["price"]),
        ({"role": "tool", "tool_call_id": "c1", "content": "4"}, ["price"]),
    ]
    assert play(shop.episode(row), lambda *_: calls(["no", "fruit"])).stop == "max_turns_reached"


def rewarded(lock, name, row, completion, **more):
    info = {"environment": name, "lock": lock.digest, "row": row, **more}
    return judge_row("environment", completion, info)


def test_rows_of_both_by_their_task_type(lock, sums, shop):
    single, several = sums.rows()[1], shop.rows()[1]
    args = {"count": 3}
    got = rewarded(lock, "tm-sums", single, "<think>4</think><answer>3</answer>", args=args)
    assert (got.score, got.status, got.binary) == (1.0, "ok", False), got
    assert rewarded(lock, "tm-sums", single, "<answer>9</answer>", args=args).score == 0.25
    assert rewarded(lock, "tm-sums", single, " ", args=args).status == "no_answer"
    half = rewarded(lock, "tm-sums", single, "x" * 50, args=args, reward_range=[-1, 1])
    assert (half.score, half.status) == (0.5, "ok")
    call = '<tool_call>{"name": "price", "arguments": {"item": "pear"}}</tool_call>'
    talk = [{"role": "assistant", "content": text} for text in (call, "12")]
    assert rewarded(lock, "tm-shop", several, json.dumps(talk)).score == 1.0
    assert rewarded(lock, "tm-shop", several, "12").score == 1.0  # it needed no tool
    waiting = rewarded(lock, "tm-shop", several, call)
    assert (waiting.score, waiting.status) == (0.0, "no_answer")
    longer = [*talk, {"role": "assistant", "content": "13"}]  # after the end
    assert rewarded(lock, "tm-shop", several, json.dumps(longer)).score == 1.0
    info = {"environment": "tm-sums", "lock": lock.digest, "row": single, "args": args}
    row = {"task_type": "environment", "verification_info": info}
    rows = [{**row, "completion": f"<answer>{n}</answer>"} for n in (3, 4, 3)]
    assert [got.score for got in verifiers.score_many(rows, workers=1)] == [1.0, 0.25, 1.0]


@pytest.fixture(scope="module")
def hostile(lock, secrets):
    with opened(lock, "tm-hostile", secrets=secrets) as process:
        yield process


def episode(process, **info):
    row = {**process.rows()[0], "info": info}
    return play(process.episode(row), says("x"))


@pytest.mark.parametrize(
    "way",
    ["read_files", "network", "write", "fork", "prints", "signals", "leftovers", "leftovers"],
)
def test_an_episode_gains_nothing(hostile, way):
    assert episode(hostile, way=way).score == 0.0


def test_an_environment_with_lasting_leftovers_is_ended(lock):
    with opened(lock, "tm-hostile") as process:
        assert episode(process, way="stuck").score == 0.0
        assert not process.alive


@pytest.mark.parametrize(
    ("way", "reason"),
    [
        ("memory", "MemoryError"),
        ("threads", "can't start new thread"),
        ("crash", "process ended"),
        ("leave", "process ended"),
        ("forged_size", "may be"),
        ("sleep", "took too long"),
        ("forever", "took too long|process ended"),
    ],
)
def test_an_episode_breaks_only_itself(hostile, way, reason, monkeypatch):
    other = hostile.episode(hostile.rows()[0])
    monkeypatch.setattr(episodes, "TURN_SECONDS", 20.0)
    with pytest.raises(EnvironmentBroken, match=reason):
        episode(hostile, way=way)
    monkeypatch.undo()
    other.step({"role": "assistant", "content": "x"})
    assert other.score().score == 1.0
    deadline = time.monotonic() + 30
    while len(below(hostile)) > 3 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(below(hostile)) <= 3  # bubblewrap, its init and the server


def below(process):
    return [
        one
        for one in [psutil.Process(process._tree.process.pid)]
        for one in [one, *one.children(recursive=True)]
        if one.status() != psutil.STATUS_ZOMBIE
    ]


@pytest.mark.parametrize("reward", ["huge", "nan", "inf", "over", "negative", "text", "raise"])
def test_a_reward_that_is_none_is_no_score(hostile, reward):
    with pytest.raises(EnvironmentBroken):
        episode(hostile, reward=reward)
    assert episode(hostile).score == 1.0


@pytest.mark.parametrize("turns", [1, 3])
def test_a_model_that_breaks_the_environment_scores_0(lock, hostile, turns, monkeypatch):
    monkeypatch.setattr(episodes, "TURN_SECONDS", 20.0)
    row, args = hostile.rows()[0], {"turns": turns}
    honest = ["Well."] * turns
    for words, status in (
        (["fail"], "crash"),
        (["leave"], "crash"),
        (["sleep"], "timeout"),
        (["Well.", "fail"], "crash"),
        (["Well."], "ok"),
    ):
        talk = [*words, *honest][:turns]
        said = json.dumps([{"role": "assistant", "content": word} for word in talk])
        got = rewarded(lock, "tm-hostile", row, talk[0] if turns == 1 else said, args=args)
        expected = status if words[-1] in talk else "ok"
        assert (got.score, got.status) == (float(expected == "ok"), expected), (words, got)


def test_an_environment_that_breaks_anyway_is_no_score(lock, hostile):
    for info in ({"reward": "raise"}, {"way": "leave"}, {"reward": "over"}):
        row = {**hostile.rows()[0], "info": info}
        got = rewarded(lock, "tm-hostile", row, "x")
        assert (got.score, got.status) == (None, "verifier_error"), got


def test_several_turns_of_a_hostile_environment(lock, monkeypatch):
    with opened(lock, "tm-hostile", turns=1000, group=True) as process:
        with pytest.raises(EnvironmentBroken, match="compares the answers of a group"):
            process.episode(process.rows()[0])
    with opened(lock, "tm-hostile", turns=1000) as process:
        row = process.rows()[0]
        with pytest.raises(EnvironmentBroken, match="a bug of the author"):
            play(process.episode({**row, "info": {"fails": True}}), says("x", "x"))
        with pytest.raises(EnvironmentBroken, match="announces"):
            play(process.episode({**row, "info": {"size": 80 << 20}}), says("x", "x"))
        monkeypatch.setattr(episodes, "MAX_TURNS", 5)
        with pytest.raises(EnvironmentBroken, match="after 5 turns"):
            play(process.episode(row), says(*"xxxxxxxxx"))
        assert process.alive
