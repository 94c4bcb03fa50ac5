"""How a stranger becomes a node: an invite, a proof of compute, a canary shard.

Invariants: an invite lets in as many keys as it says, and is known here by its hash alone; a known
key needs none, so that a node can start again; the clock of the proof runs here; what waits between
the steps is in memory, and a node whose step was forgotten registers again.
"""

import hashlib
import secrets
import time
from dataclasses import dataclass

from fastapi.concurrency import run_in_threadpool

from infra.pool import challenge as proof
from infra.pool import wire
from infra.pool.core.events import CanaryGiven, Proved, Registered
from infra.pool.core.requirements import Specs
from infra.pool.core.state import NodeState
from infra.pool.service.errors import Conflict, Forbidden
from infra.pool.service.pool import Card, InviteRow, Pool

CANARY_SECONDS = 1800.0


@dataclass
class _Pending:
    challenge_id: str
    challenge: proof.Challenge
    specs: Specs
    started: float
    seconds: float = 0.0
    root: str = ""
    secret: bytes = b""
    answered: bool = False
    rate: float = 0.0
    canary_due: float = 0.0


class Admission:
    """Strangers on their way in."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._pending: dict[str, _Pending] = {}

    def invite(self, ask: wire.InviteRequest) -> wire.Invite:
        """A new invite."""
        key = secrets.token_urlsafe(24)
        row = InviteRow(
            invite_id=secrets.token_hex(8),
            expires_at=time.time() + ask.seconds,
            uses_left=ask.uses,
            label=ask.label,
            trusted=ask.trusted,
        )
        hashed = _hash(key)
        self._pool.invites[hashed] = row
        self._pool.journal.touch("invite", hashed)
        return wire.Invite(invite=key, invite_id=row.invite_id, expires_at=row.expires_at)

    def register(self, ask: wire.RegisterRequest, peer_ip: str) -> NodeState:
        """Take a node in, or a known one again; the state that it has now."""
        pool = self._pool
        card = pool.cards.get(ask.id)
        if card is None:
            row = self._use_invite(ask.invite)
            card = Card(
                node_id=ask.id,
                ip_address="",
                port=0,
                specs=ask.compute_specs,
                invite_id=row.invite_id,
                trusted=row.trusted,
                first_seen=time.time(),
            )
        pool.cards[ask.id] = card.model_copy(
            update={
                "ip_address": ask.ip_address or peer_ip,
                "port": ask.port,
                "specs": ask.compute_specs,
                "p2p_id": ask.worker_p2p_id,
                "p2p_addresses": ask.worker_p2p_addresses,
                "version": ask.version,
                "location": ask.location,
            }
        )
        pool.journal.touch("card", ask.id)
        # What it was asked was for the specs that it claimed before.
        self._pending.pop(ask.id, None)
        place = ask.location
        pool.decide(
            Registered(
                ask.id,
                core_specs(ask.compute_specs),
                (place.latitude, place.longitude) if place else None,
                f"{ask.ip_address or peer_ip}:{ask.port}",
                frozenset(ask.models),
                card.trusted,
            )
        )
        if not pool.settings.challenge and pool.state.nodes[ask.id].state is NodeState.DISCOVERED:
            pool.decide(Proved(ask.id, True))
        return pool.state.nodes[ask.id].state

    def _use_invite(self, key: str) -> InviteRow:
        hashed = _hash(key)
        row = self._pool.invites.get(hashed)
        if row is None or row.expires_at < time.time() or row.uses_left < 1:
            raise Forbidden(
                "a node that is new here needs an invite that is known, not expired and not used "
                "up; ask the pool's operator for one",
                "BAD_INVITE",
            )
        row.uses_left -= 1
        if row.uses_left == 0:
            del self._pool.invites[hashed]
        self._pool.journal.touch("invite", hashed)
        return row

    def offer(self, node_id: str) -> wire.ChallengeOffer:
        """Something to multiply; its clock starts now."""
        node = self._pool.state.nodes[node_id]
        if node.state is not NodeState.DISCOVERED:
            raise Conflict(f"the node is {node.state}; there is nothing to prove", "NOT_ASKED")
        pending = _Pending(
            secrets.token_hex(16),
            proof.challenge_for(node.specs, secrets.token_bytes(32)),
            node.specs,
            time.monotonic(),
        )
        self._pending[node_id] = pending
        return wire.ChallengeOffer(challenge_id=pending.challenge_id, challenge=pending.challenge)

    def commit(self, node_id: str, said: wire.ChallengeCommit) -> wire.ChallengeReveal:
        """The node names its product's root; its clock stops."""
        pending = self._find(node_id, said.challenge_id)
        if pending.root:
            raise Conflict("a root was committed to already", "OUT_OF_ORDER")
        pending.seconds = time.monotonic() - pending.started
        pending.root, pending.secret = said.root, secrets.token_bytes(32)
        rows = proof.rows_to_open(pending.challenge, pending.secret)
        return wire.ChallengeReveal(challenge_id=pending.challenge_id, rows=rows)

    async def answer(self, node_id: str, said: wire.ChallengeAnswer) -> wire.Admission:
        """Judge the opened rows; then comes the canary, where there is one."""
        pending = self._find(node_id, said.challenge_id)
        if not pending.root or pending.answered:
            raise Conflict("no root was committed to, or it was answered already", "OUT_OF_ORDER")
        pending.answered = True
        verdict = await run_in_threadpool(
            proof.judge,
            pending.challenge,
            pending.specs,
            pending.root,
            said.openings,
            pending.secret,
            pending.seconds,
        )
        self._find(node_id, said.challenge_id)  # it may have registered anew meanwhile
        pending.rate = verdict.rate
        canary = self._pool.settings.canary
        if verdict.passed and canary is not None:
            pending.canary_due = time.monotonic() + CANARY_SECONDS
            self._pool.decide(CanaryGiven(node_id, CANARY_SECONDS))
            work = wire.CanaryWork(
                shard_id="canary", task_id="canary", payload=canary.payload, image=canary.image
            )
            return wire.Admission(passed=True, canary=work)
        return self._proved(node_id, verdict.passed, verdict.rate, verdict.reason)

    def canary(self, node_id: str, said: wire.CanaryResult) -> wire.Admission:
        """Judge the canary shard."""
        pending, canary = self._pending.get(node_id), self._pool.settings.canary
        if pending is None or not pending.rate or canary is None:
            raise Conflict("this node was given no canary; PUT /nodes again", "NOT_ASKED")
        wrong = [
            key
            for key, value in canary.expected.items()
            if key not in said.output or said.output[key] != value
        ]
        late = time.monotonic() > pending.canary_due
        reason = f"canary: {', '.join(wrong)}" if wrong else "canary: too late" if late else ""
        return self._proved(node_id, not reason, pending.rate, reason)

    def _proved(self, node_id: str, passed: bool, rate: float, reason: str) -> wire.Admission:
        self._pending.pop(node_id, None)
        self._pool.decide(Proved(node_id, passed, rate))
        return wire.Admission(passed=passed, reason=reason)

    def _find(self, node_id: str, challenge_id: str) -> _Pending:
        pending = self._pending.get(node_id)
        if pending is None or pending.challenge_id != challenge_id:
            raise Conflict("there is no such challenge; POST /nodes/challenge", "NOT_ASKED")
        return pending

    def forget(self) -> None:
        """Drop what waits for nodes that are gone."""
        for node_id in [n for n in self._pending if n not in self._pool.state.nodes]:
            del self._pending[node_id]


def core_specs(specs: wire.ComputeSpecs) -> Specs:
    """What the core groups by."""
    gpu, cpu = specs.gpu or wire.GpuSpecs(), specs.cpu or wire.CpuSpecs()
    return Specs(
        gpu_count=gpu.count,
        gpu_model=gpu.model,
        gpu_memory_mb=gpu.memory_mb,
        cpu_cores=cpu.cores,
        ram_mb=specs.ram_mb,
        storage_gb=specs.storage_gb,
    )


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()
