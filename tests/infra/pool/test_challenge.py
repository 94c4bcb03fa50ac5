"""The proof of compute: honest nodes pass, whoever leaves something out does not."""

import base64
from dataclasses import replace

import numpy as np
import pytest

from infra.pool.challenge import (
    ANY_CPU,
    BLOCK,
    OPENED,
    Challenge,
    Numpy,
    Work,
    challenge_for,
    floor_of,
    judge,
    rows_to_open,
)
from infra.pool.core.requirements import Specs

CPU = Specs(cpu_cores=2)
SMALL = Challenge("07" * 32, BLOCK * 8, 64)
SECRET = b"drawn after the root has come"


@pytest.fixture(scope="module")
def work() -> Work:
    return Work(SMALL, [Numpy()])


@pytest.fixture(scope="module")
def openings(work):
    return work.open(rows_to_open(SMALL, SECRET))


def test_an_honest_node_passes_and_shows_its_rate(work, openings):
    verdict = judge(SMALL, CPU, work.root, openings, SECRET, seconds=0.01)
    assert verdict.passed, verdict.reason
    assert verdict.rate == pytest.approx(2 * SMALL.rows * 64**2 / 0.01)
    assert len(openings) == OPENED


def test_devices_and_steps_change_nothing(work):
    assert Work(SMALL, [Numpy(), Numpy()], step=1).root == work.root


def test_the_row_is_the_product(work):
    from infra.pool import challenge as module

    row = 700
    (opening,) = work.open([row])
    left = module._left(SMALL, Numpy(), row, row + 1)
    values = np.frombuffer(base64.b64decode(opening.values), "<i4")
    assert (values == (left @ module._square(SMALL, Numpy()))[0]).all()
    entries = module._square(SMALL, Numpy())
    assert entries.min() == -7 and entries.max() == 8 and abs(entries.mean() - 0.5) < 0.3


def test_too_slow_for_what_it_claims(work, openings):
    claims = Specs(8, "NVIDIA H200", 141_000)
    verdict = judge(SMALL, claims, work.root, openings, SECRET, seconds=0.01)
    assert not verdict.passed and "claimed are 1.6e+15" in verdict.reason
    assert floor_of(CPU) == ANY_CPU < 1e9


def _changed(opening, **values):
    return replace(opening, **values)


def _other_row(opening):
    data = np.frombuffer(base64.b64decode(opening.values), "<i4").copy()
    data[3] += 1
    return _changed(opening, values=base64.b64encode(data.tobytes()).decode())


def _shifted_fold(opening):
    data = np.frombuffer(base64.b64decode(opening.folds), "<i8").copy()
    data[opening.row % BLOCK] += 1
    return _changed(opening, folds=base64.b64encode(data.tobytes()).decode())


LIES = {
    "another row": (_other_row, "not the product"),
    "another fold": (_shifted_fold, "committed to"),
    "a short row": (lambda o: _changed(o, values=o.values[:-8]), "right size"),
    "no base64": (lambda o: _changed(o, values="*"), "right size"),
    "short path": (lambda o: _changed(o, path=o.path[:-1]), "not in the tree"),
    "long path": (lambda o: _changed(o, path=(*o.path, "00" * 32)), "not in the tree"),
    "no hex": (lambda o: _changed(o, path=("zz", *o.path[1:])), "not in the tree"),
    "a row nobody asked for": (lambda o: _changed(o, row=(o.row + 1) % SMALL.rows), "asked for"),
}


@pytest.mark.parametrize(("lie", "reason"), LIES.values(), ids=LIES)
def test_a_lie_is_seen(work, openings, lie, reason):
    told = [*openings[:-1], lie(openings[-1])]
    verdict = judge(SMALL, CPU, work.root, told, SECRET, seconds=0.01)
    assert not verdict.passed and reason in verdict.reason


def test_rows_computed_after_the_commitment_do_not_pass(work):
    """Who commits to half of the product only can make the other rows later, but not the root."""
    lazy = Work(SMALL, [Numpy()])
    lazy._folds = lazy._folds.copy()
    lazy._folds[SMALL.rows // 2 :] = 0
    verdict = judge(
        SMALL, CPU, work.root, lazy.open(rows_to_open(SMALL, SECRET)), SECRET, seconds=0.01
    )
    assert not verdict.passed and "committed to" in verdict.reason


def test_another_secret_asks_for_other_rows_and_each_seed_is_another_product(work):
    assert rows_to_open(SMALL, b"a") != rows_to_open(SMALL, b"b")
    assert Work(replace(SMALL, seed="08" * 32), [Numpy()]).root != work.root


def test_the_pools_work_does_not_grow_with_the_cards():
    card = challenge_for(Specs(8, "H200", 141_000), b"\1" * 32)
    assert card.rows > 100 * card.size
    assert challenge_for(CPU, b"\1" * 32).size <= 512
