"""Proof of compute and canary shard, with the real challenge."""

import asyncio
from dataclasses import replace

import pytest

from infra.pool import wire
from infra.pool.challenge import Numpy, Work
from infra.pool.core.decide import decide
from infra.pool.core.events import Tick
from infra.pool.service.admission import CANARY_SECONDS, Admission
from infra.pool.service.errors import Conflict, Forbidden
from infra.pool.service.listeners import Listeners
from infra.pool.service.pool import Pool
from infra.pool.service.settings import Canary, ServiceSettings
from infra.pool.service.store import PoolStore
from toploc.signing import SigningKey

CANARY = Canary(image="local/worker", payload={"n": 3}, expected={"tokens": [1, 2]})


def admitted(tmp_path, spoil=lambda openings: openings, output=None, canary=CANARY):
    """(what the node was told last, its state) after all steps of a node that may lie."""

    async def run():
        settings = ServiceSettings(canary=canary)
        pool = Pool(PoolStore(str(tmp_path / "pool.sqlite")), settings, Listeners([]))
        await pool.open("epoch")
        admission, node_id = Admission(pool), SigningKey.generate().node_id
        key = admission.invite(wire.InviteRequest(trusted=True)).invite
        ask = wire.RegisterRequest(id=node_id, invite=key)
        assert admission.register(ask, "127.0.0.1") == "Discovered"
        with pytest.raises(Forbidden):
            ask2 = wire.RegisterRequest(id=SigningKey.generate().node_id, invite=key)
            admission.register(ask2, "127.0.0.1")
        with pytest.raises(Conflict):
            admission.canary(node_id, wire.CanaryResult(output=CANARY.expected))
        offer = admission.offer(node_id)
        work = Work(offer.challenge, [Numpy()])
        commit = wire.ChallengeCommit(challenge_id=offer.challenge_id, root=work.root)
        reveal = admission.commit(node_id, commit)
        with pytest.raises(Conflict):
            admission.commit(node_id, commit)
        openings = spoil(work.open(reveal.rows))
        answer = wire.ChallengeAnswer(challenge_id=offer.challenge_id, openings=openings)
        told = await admission.answer(node_id, answer)
        if told.canary is not None:
            assert (told.canary.image, told.canary.payload) == (CANARY.image, CANARY.payload)
            told = admission.canary(node_id, wire.CanaryResult(output=output))
        with pytest.raises(Conflict):
            await admission.answer(node_id, answer)
        await pool.journal.flush()
        node = pool.state.nodes[node_id]
        assert pool.cards[node_id].trusted and node.trusted
        await pool.store.close()
        return told, node

    return asyncio.run(run())


@pytest.mark.parametrize("step", ["committed", "judging", "canary"])
def test_other_specs_than_those_that_were_proven_are_not_let_in(tmp_path, monkeypatch, step):
    """A laptop proves itself and registers as eight H200 before it is judged."""

    async def run():
        settings = ServiceSettings(canary=CANARY)
        pool = Pool(PoolStore(str(tmp_path / "pool.sqlite")), settings, Listeners([]))
        await pool.open("epoch")
        admission, node_id = Admission(pool), SigningKey.generate().node_id
        key = admission.invite(wire.InviteRequest()).invite
        ask = wire.RegisterRequest(id=node_id, invite=key)
        gpus = wire.GpuSpecs(count=8, model="H200", memory_mb=1128000)
        more = ask.model_copy(update={"compute_specs": wire.ComputeSpecs(gpu=gpus)})
        admission.register(ask, "127.0.0.1")
        offer = admission.offer(node_id)
        work = Work(offer.challenge, [Numpy()])
        reveal = admission.commit(
            node_id, wire.ChallengeCommit(challenge_id=offer.challenge_id, root=work.root)
        )
        answer = wire.ChallengeAnswer(
            challenge_id=offer.challenge_id, openings=work.open(reveal.rows)
        )
        with pytest.raises(Conflict):
            if step == "committed":
                admission.register(more, "127.0.0.1")
            judging = asyncio.create_task(admission.answer(node_id, answer))
            if step == "judging":
                await asyncio.sleep(0)
                admission.register(more, "127.0.0.1")
            assert (await judging).canary is not None
            admission.register(more, "127.0.0.1")
            admission.canary(node_id, wire.CanaryResult(output=CANARY.expected))
        node = pool.state.nodes[node_id]
        assert node.state == "Discovered" and not node.proven and node.specs.gpu_count == 8
        await pool.journal.flush()
        await pool.store.close()

    asyncio.run(run())


def test_a_canary_may_take_longer_than_the_challenge(tmp_path):
    async def run():
        settings = ServiceSettings(canary=CANARY)
        pool = Pool(PoolStore(str(tmp_path / "pool.sqlite")), settings, Listeners([]))
        await pool.open("epoch")
        admission, node_id = Admission(pool), SigningKey.generate().node_id
        key = admission.invite(wire.InviteRequest()).invite
        admission.register(wire.RegisterRequest(id=node_id, invite=key), "127.0.0.1")
        offer = admission.offer(node_id)
        work = Work(offer.challenge, [Numpy()])
        reveal = admission.commit(
            node_id, wire.ChallengeCommit(challenge_id=offer.challenge_id, root=work.root)
        )
        openings = work.open(reveal.rows)
        await admission.answer(
            node_id, wire.ChallengeAnswer(challenge_id=offer.challenge_id, openings=openings)
        )
        wait = pool.state.settings.challenge_seconds
        for seconds, there in ((wait + 1, True), (CANARY_SECONDS + 1, False)):
            # Ticks without a gap, as the service makes them.
            until = pool.state.now + seconds
            while pool.state.now < until:
                decide(pool.state, Tick(), pool.state.now + 5.0)
            assert (node_id in pool.state.nodes) == there
        await pool.journal.flush()
        await pool.store.close()

    asyncio.run(run())


def test_an_honest_node_is_let_in(tmp_path):
    told, node = admitted(tmp_path, output={"tokens": [1, 2], "seconds": 3})
    assert (told.passed, told.canary, node.state) == (True, None, "WaitingForHeartbeat")
    assert node.rate > 0 and node.proven


@pytest.mark.parametrize("output", [{"tokens": [1, 3]}, {}])
def test_a_wrong_canary_keeps_it_out(tmp_path, output):
    told, node = admitted(tmp_path, output=output)
    assert not told.passed and "canary: tokens" in told.reason
    assert node.state == "Ejected" and not node.proven


def test_a_wrong_product_keeps_it_out(tmp_path):
    def spoil(openings):
        return [replace(openings[0], values=openings[1].values), *openings[1:]]

    told, node = admitted(tmp_path, spoil, canary=None)
    assert not told.passed and "row" in told.reason and node.state == "Ejected"
