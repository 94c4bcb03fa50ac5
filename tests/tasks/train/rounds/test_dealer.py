"""Dealing over a pool of real child processes: refusals, losses, stragglers."""

import sys
import threading
import time
from pathlib import Path

import pytest

from infra.pool import Job
from tasks.generate.config import SamplingConfig
from tasks.provision.config import ProvisionConfig
from tasks.provision.local import local_pool
from tasks.train.rollouts.errors import RolloutsRefused
from tasks.train.rollouts.job import Group, RolloutJob
from tasks.train.rounds.dealer import Dealer
from tasks.train.rounds.errors import JobGivenUp

NODE = [sys.executable, str(Path(__file__).parents[2] / "provision" / "node.py")]


def asked(number: int) -> RolloutJob:
    group = Group(group=0, task_id="t", problem_id="p", task_type="k", prompt="x",
                  prompt_ids=[1], seeds=[1])  # fmt: skip
    return RolloutJob(run_id="r", step=1, number=number, model="m", least_version=0,
                      most_version=0, sampling=SamplingConfig(), batch_groups=1,
                      groups=[group])  # fmt: skip


class Taken:
    """Takes uploads; refuses the first `refuse` of each job."""

    def __init__(self, refuse: int = 0):
        self.refuse = refuse
        self.seen: list[tuple[int, int]] = []
        self.thread: set[int] = set()

    def __call__(self, job, attempt, result):
        self.seen.append((job.number, attempt))
        self.thread.add(threading.get_ident())
        if sum(number == job.number for number, _ in self.seen) <= self.refuse:
            raise RolloutsRefused(job.name, result.node_id, ["forged: a lie"], lie=True)


def to_job(payload):
    return lambda job, attempt: Job(f"{job.name}-{attempt}", "x", payload(job, attempt))


def collect(dealer, count, seconds=60.0):
    found, deadline = [], time.monotonic() + seconds
    while len(found) < count:
        assert time.monotonic() < deadline, f"only {found} came"
        found += [job.number for job in dealer.settled(0.05)]
    return found


@pytest.fixture(scope="module")
def pool():
    with local_pool(ProvisionConfig(nodes=2), command=NODE) as made:
        yield made


def test_every_job_is_accepted_once_and_read_on_one_other_thread(pool):
    taken = Taken()
    with Dealer(pool, to_job(lambda job, attempt: {}), taken, 3, 60.0) as dealer:
        for number in range(8):
            dealer.deal(asked(number), 1)
        assert sorted(collect(dealer, 8)) == list(range(8))
        assert dealer.settled(0.05) == []
    assert taken.thread and threading.get_ident() not in taken.thread and len(taken.thread) == 1


def test_a_refused_job_goes_out_again_until_it_is_given_up(pool):
    taken = Taken(refuse=2)
    with Dealer(pool, to_job(lambda job, attempt: {}), taken, 3, 60.0) as dealer:
        dealer.deal(asked(0), 1)
        assert collect(dealer, 1) == [0]
    assert taken.seen == [(0, 0), (0, 1), (0, 2)]
    with Dealer(pool, to_job(lambda job, attempt: {}), Taken(refuse=9), 3, 60.0) as dealer:
        dealer.deal(asked(0), 1)
        with pytest.raises(JobGivenUp, match=r"failed 3 times.*forged"):
            collect(dealer, 1)


def test_a_job_whose_node_dies_again_and_again_goes_out_again(pool, tmp_path):
    dying = {"die_until": str(tmp_path / "mark"), "times": 4}
    with Dealer(pool, to_job(lambda job, attempt: dying), Taken(), 3, 60.0) as dealer:
        dealer.deal(asked(0), 1)
        assert collect(dealer, 1) == [0]
        assert dealer.tally.lost == 1


def test_a_straggler_gets_a_second_node_and_the_first_good_answer_counts(pool):
    taken = Taken()
    slow_first = to_job(lambda job, attempt: {"sleep": 20 if attempt == 0 else 0})
    with Dealer(pool, slow_first, taken, 3, backup_seconds=0.3) as dealer:
        dealer.deal(asked(0), 1)
        started = time.monotonic()
        assert collect(dealer, 1) == [0]
        assert time.monotonic() - started < 15
        assert dealer.tally.backups == 1
    assert taken.seen == [(0, 1)]


def test_a_job_that_nobody_waits_for_is_forgotten(pool):
    with Dealer(pool, to_job(lambda job, attempt: {"sleep": 0.2}), Taken(), 3, 60.0) as dealer:
        for number in range(6):
            dealer.deal(asked(number), 1)
        dealer.drop(lambda job: job.number == 5)
        assert collect(dealer, 1) == [5]
        assert dealer.settled(0.5) == []
