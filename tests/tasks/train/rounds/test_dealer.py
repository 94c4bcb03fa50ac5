"""Dealing over a pool of threads: refusals, losses, stragglers."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from infra.pool import Job, JobResult, PoolError
from tasks.generate.config import SamplingConfig
from tasks.train.rollouts.errors import CheckCrashed, RolloutsRefused
from tasks.train.rollouts.job import Group, RolloutJob
from tasks.train.rounds.dealer import Dealer
from tasks.train.rounds.errors import JobGivenUp


class Threads:
    """A pool whose nodes are threads that do what a job's payload says."""

    def __init__(self, nodes: int):
        self._executor = ThreadPoolExecutor(nodes)
        self.begun: list[str] = []

    def submit(self, job, check=None):
        return self._executor.submit(self._do, job, check)

    def _do(self, job, check):
        self.begun.append(job.job_id)
        time.sleep(job.payload.get("sleep", 0))
        if "lost" in job.payload:
            raise PoolError(f"{job.job_id}: its nodes died")
        result = JobResult(job.job_id, "n" * 64, {}, 0.1)
        check(result)
        return result

    def close(self):
        self._executor.shutdown(cancel_futures=True)


def asked(number: int, step: int = 1, run_id: str = "r") -> RolloutJob:
    group = Group(group=0, task_id="t", problem_id="p", task_type="k", prompt="x",
                  prompt_ids=[1], seeds=[1])  # fmt: skip
    return RolloutJob(run_id=run_id, step=step, number=number, model="m", least_version=0,
                      most_version=0, sampling=SamplingConfig(), batch_groups=1,
                      groups=[group])  # fmt: skip


class Taken:
    """Takes uploads; refuses the first `refuse` of each job."""

    def __init__(self, refuse: int = 0):
        self.refuse = refuse
        self.seen: list[tuple[int, int]] = []
        self.thrown: list[str] = []
        self.threads: set[int] = set()
        self.at_work: list[int] = []
        self.most = 0

    def throw_away(self, result):
        self.thrown.append(result.job_id)

    def __call__(self, job, result):
        assert job.number not in self.at_work, "two uploads of a job are read at the same time"
        self.at_work.append(job.number)
        self.most = max(self.most, len(self.at_work))
        self.seen.append((job.number, int(result.job_id.rpartition("-")[2])))
        self.threads.add(threading.get_ident())
        time.sleep(0.05)
        self.at_work.remove(job.number)
        if sum(number == job.number for number, _ in self.seen) <= self.refuse:
            raise RolloutsRefused(job.name, result.node_id, ["forged: a lie"], lie=True)


def to_job(payload):
    return lambda job, attempt: Job(f"{job.name}-{attempt}", "x", payload(job, attempt))


def dealing(pool, to_job, taken, tries=3, backup_seconds=60.0):
    return Dealer(pool, to_job, taken, taken.throw_away, tries, backup_seconds)


def collect(dealer, count, seconds=60.0):
    found, deadline = [], time.monotonic() + seconds
    while len(found) < count:
        assert time.monotonic() < deadline, f"only {found} came"
        found += [job.number for job in dealer.settled(0.05)]
    return found


@pytest.fixture
def pool():
    made = Threads(2)
    yield made
    made.close()


def test_every_job_is_accepted_once_and_several_are_read_at_a_time_by_others(pool):
    taken = Taken()
    with dealing(pool, to_job(lambda job, attempt: {}), taken) as dealer:
        for number in range(8):
            dealer.deal(asked(number), 1)
        assert sorted(collect(dealer, 8)) == list(range(8))
        assert dealer.settled(0.05) == []
    assert threading.get_ident() not in taken.threads
    assert taken.most == 2


def test_a_refused_job_goes_out_again_as_long_as_there_are_liars(pool):
    taken = Taken(refuse=9)
    with dealing(pool, to_job(lambda job, attempt: {}), taken, tries=3) as dealer:
        dealer.deal(asked(0), 1)
        assert collect(dealer, 1) == [0]
        assert dealer.tally().refused == 9
    assert taken.seen == [(0, attempt) for attempt in range(10)]


def test_a_job_that_is_lost_again_and_again_is_given_up(pool):
    with dealing(pool, to_job(lambda job, attempt: {"lost": True}), Taken(), tries=3) as dealer:
        dealer.deal(asked(0), 1)
        with pytest.raises(JobGivenUp, match=r"failed 3 times.*its nodes died"):
            collect(dealer, 1)


def test_jobs_that_all_take_long_are_not_done_twice(pool):
    slow = to_job(lambda job, attempt: {"sleep": 0.5})
    with dealing(pool, slow, Taken(), backup_seconds=0.2) as dealer:
        dealer.deal(asked(0), 1)
        collect(dealer, 1)
        dealer.tally()
        for number in (1, 2):
            dealer.deal(asked(number), 1)
        collect(dealer, 2)
        assert dealer.tally().backups == 0


def test_a_job_whose_nodes_die_goes_out_again(pool):
    dying = to_job(lambda job, attempt: {"lost": True} if attempt < 2 else {})
    with dealing(pool, dying, Taken()) as dealer:
        dealer.deal(asked(0), 1)
        assert collect(dealer, 1) == [0]
        assert dealer.tally().lost == 2
        assert dealer.tally().lost == 0


def test_a_straggler_gets_a_second_node_and_the_first_good_answer_counts(pool):
    taken = Taken()
    slow_first = to_job(lambda job, attempt: {"sleep": 2 if attempt == 0 else 0})
    with dealing(pool, slow_first, taken, backup_seconds=0.2) as dealer:
        dealer.deal(asked(0), 1)
        assert collect(dealer, 1) == [0]
        assert dealer.tally().backups == 1
        assert taken.seen == [(0, 1)]
    pool.close()
    # The first one's answer came when nobody waited for it any more.
    assert taken.seen == [(0, 1)]
    assert taken.thrown == [f"{asked(0).name}-0"]


def test_a_second_try_that_no_node_has_begun_is_not_done_after_the_first_answer():
    pool = Threads(1)
    with dealing(
        pool, to_job(lambda job, attempt: {"sleep": 0.5}), Taken(), backup_seconds=0.1
    ) as dealer:
        for number in range(3):
            dealer.deal(asked(number), 1)
        assert sorted(collect(dealer, 3)) == [0, 1, 2]
        assert dealer.tally().backups == 3
    pool.close()
    # The last one may have begun before the first answer was read.
    assert pool.begun[:3] == [f"{asked(number).name}-0" for number in range(3)]
    assert f"{asked(0).name}-1" not in pool.begun


def test_rollouts_of_a_step_that_has_its_batch_are_forgotten(pool):
    taken = Taken()
    with dealing(pool, to_job(lambda job, attempt: {"sleep": 0.1}), taken) as dealer:
        for number in range(5):
            dealer.deal(asked(number), 1)
        dealer.deal(asked(7, step=2), 2)
        dealer.deal(asked(8, run_id="r/held-out"), 0)
        dealer.drop(1)
        assert sorted(collect(dealer, 2)) == [7, 8]
        assert dealer.settled(0.5) == []
    pool.close()
    # Some had begun; what they made is deleted unread.
    assert sorted(number for number, _ in taken.seen) == [7, 8]
    read = {f"{asked(7, step=2).name}-0", f"{asked(8, run_id='r/held-out').name}-0"}
    assert set(taken.thrown) == set(pool.begun) - read


def test_what_comes_when_the_dealer_is_closed_is_deleted_unread():
    pool, taken = Threads(1), Taken()
    with dealing(pool, to_job(lambda job, attempt: {"sleep": 0.3}), taken) as dealer:
        dealer.deal(asked(0), 1)
    pool.close()
    assert (taken.seen, taken.thrown) == ([], pool.begun)


def test_an_upload_that_cannot_be_checked_is_asked_for_again(pool):
    class Crashing(Taken):
        def __call__(self, job, result):
            super().__call__(job, result)
            if len(self.seen) == 1:
                raise CheckCrashed(job.name, "out of memory")

    taken = Crashing()
    with dealing(pool, to_job(lambda job, attempt: {}), taken) as dealer:
        dealer.deal(asked(0), 1)
        assert collect(dealer, 1) == [0]
        tally = dealer.tally()
    assert (tally.refused, tally.accepted) == (1, 1)
    assert round(tally.node_seconds, 6) == 0.1
