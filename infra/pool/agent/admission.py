"""A node's way into the pool: it registers, proves its compute, and does the canary shard."""

import shutil
from collections.abc import Callable

from infra.pool.agent.cuda import devices
from infra.pool.agent.errors import NotAdmitted
from infra.pool.agent.launch import Launch
from infra.pool.challenge import Work
from infra.pool.client import PoolClient
from infra.pool.errors import RequestRefused
from infra.pool.wire import (
    Admission,
    CanaryResult,
    CanaryWork,
    ChallengeAnswer,
    ChallengeCommit,
    ChallengeOffer,
    ChallengeReveal,
    RegisterRequest,
    Registration,
)

ATTEMPTS = 3
CONFLICT = 409


def join(
    client: PoolClient, request: RegisterRequest, launch_of: Callable[[str], Launch]
) -> Registration:
    """Register and prove; NotAdmitted says why not. `launch_of` says how an image is started.

    A service that was restarted in between has forgotten the challenge: then it begins again.
    """
    for _ in range(ATTEMPTS):
        try:
            return _join(client, request, launch_of)
        except RequestRefused as error:
            why = str(error)
            if error.status != CONFLICT:
                break
    raise NotAdmitted(why)


def _join(
    client: PoolClient, request: RegisterRequest, launch_of: Callable[[str], Launch]
) -> Registration:
    registration = client.call("PUT", "/nodes", request, Registration)
    if registration.challenge:
        admission = prove(client)
        if admission.canary is not None:
            admission = do_canary(client, admission.canary, launch_of(admission.canary.image))
        if not admission.passed:
            raise NotAdmitted(f"the pool does not admit this node: {admission.reason}")
    return registration


def prove(client: PoolClient) -> Admission:
    """Answer the proof of compute."""
    computing = devices()
    offer = client.call("POST", "/nodes/challenge", answer=ChallengeOffer)
    work = Work(offer.challenge, computing)
    commit = ChallengeCommit(challenge_id=offer.challenge_id, root=work.root)
    reveal = client.call("POST", "/nodes/challenge/commit", commit, ChallengeReveal)
    opened = ChallengeAnswer(challenge_id=offer.challenge_id, openings=work.open(reveal.rows))
    return client.call("POST", "/nodes/challenge/answer", opened, Admission)


def do_canary(client: PoolClient, canary: CanaryWork, launch: Launch) -> Admission:
    """Do a shard whose result the pool knows."""
    out, inside = launch.out()
    worker = launch.worker()
    try:
        worker.meet()
        answer = worker.ask(
            canary.payload | {"job_id": canary.shard_id, "out": inside}, lambda share: None
        )
    finally:
        worker.stop()
        shutil.rmtree(out, ignore_errors=True)
    if "output" not in answer:
        raise NotAdmitted(f"the canary shard failed here: {str(answer.get('error'))[:300]}")
    result = CanaryResult(output=answer["output"])
    return client.call("POST", "/nodes/canary", result, Admission)
