"""Which commitments are checked when not all are, and what that catches and costs.

A node cannot know beforehand whether its work will be looked at: the choice is made after it has
committed to the work, by a keyed hash of the commitment whose key only the trusted side has. The
rate falls with the honest verdicts that a node has earned, never below a floor, and is 1 again
after the node is caught. A rate of 1 checks everything.

Invariants: the same key and commitment give the same choice in every process; the forecast is exact
for the policy as it stands (a Markov chain over the node's record), and `simulate` draws with the
very functions that choose in a run.
"""

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass

from toploc.errors import InvalidSettings

_UNIT = 2.0**-53


@dataclass(frozen=True, slots=True)
class AuditPolicy:
    """How the rate of audits follows a node's record."""

    floor: float = 1.0
    """Least share of a node's commitments that is checked; 1 checks all."""
    halving: int = 8
    """Honest verdicts after which the rate is one half."""

    def __post_init__(self) -> None:
        if not 0.0 < self.floor <= 1.0 or self.halving < 1:
            raise InvalidSettings(
                f"audit policy: floor={self.floor}, halving={self.halving}; the floor is a share "
                "above 0 and at most 1, halving at least 1. A floor of 1 checks everything"
            )

    def rate(self, honest: int) -> float:
        """Probability of a check for a node with so many honest verdicts since it was caught."""
        return max(self.floor, self.halving / (self.halving + honest))


def draw(key: bytes, commitment: str, sha256: str) -> float:
    """A number in [0, 1) that nobody without the key can predict.

    Args:
        key: secret of the trusted side, at least 16 bytes.
        commitment: name of the work, for example a shard id.
        sha256: hash of the bytes that were committed to, in hex.
    """
    if len(key) < 16:
        raise InvalidSettings(f"audit key of {len(key)} bytes; give at least 16 random ones")
    message = b"toploc-audit\0" + commitment.encode() + b"\0" + sha256.encode()
    digest = hmac.new(key, message, hashlib.sha256).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) * _UNIT


def catch_chance(rate: float, cheated: int, detect: float = 1.0) -> float:
    """Chance that at least one of so many cheated commitments is checked and found out.

    `detect` is the chance that a check finds what is wrong.
    """
    return float(1.0 - (1.0 - rate * detect) ** cheated)


def needed_rate(target: float, cheated: int, detect: float = 1.0) -> float | None:
    """The constant rate whose `catch_chance` is `target`; None where even checking all is less."""
    if cheated < 1:
        return None
    rate = (1.0 - (1.0 - target) ** (1.0 / cheated)) / detect
    return rate if rate <= 1.0 else None


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a policy does to one node."""

    caught: float
    """Probability that the node is caught within its commitments."""
    audited: float
    """Expected share of its commitments that is checked, up to and with the one that catches it."""
    kept: float
    """Expected number of cheated commitments that stand at the end: those of a node that was never
    caught. A catch revokes the unchecked ones before it."""


def forecast(policy: AuditPolicy, cheats: Sequence[float], detect: float = 1.0) -> Forecast:
    """What to expect of a node that cheats on commitment i with probability cheats[i]."""
    free = {0: 1.0}
    bad = {0: 0.0}
    caught = checked = seen = 0.0
    for cheat in cheats:
        after: dict[int, float] = {}
        after_bad: dict[int, float] = {}
        for honest, mass in free.items():
            rate = policy.rate(honest)
            seen += mass
            checked += mass * rate
            found = rate * cheat * detect
            passed, unseen = rate - found, 1.0 - rate
            caught += mass * found
            # `bad` is the number of cheated commitments so far times the chance to be here.
            for state, share, cheated in (
                (honest + 1, passed, rate * cheat * (1.0 - detect)),
                (honest, unseen, unseen * cheat),
            ):
                after[state] = after.get(state, 0.0) + mass * share
                after_bad[state] = after_bad.get(state, 0.0) + bad[honest] * share + mass * cheated
        free, bad = after, after_bad
    return Forecast(caught, checked / seen if seen else 0.0, sum(bad.values()))


def simulate(
    policy: AuditPolicy, cheats: Sequence[float], trials: int, detect: float = 1.0, seed: int = 0
) -> Forecast:
    """The same by playing it: keys, commitments and lies are drawn for every trial."""
    caught = checked = seen = kept = 0
    for trial in range(trials):
        key = hashlib.sha256(b"simulate" + seed.to_bytes(8, "big") + trial.to_bytes(8, "big"))
        secret, honest, standing = key.digest(), 0, 0
        for number, cheat in enumerate(cheats):
            name = f"{trial}/{number}"
            lies = cheat >= 1.0 or (cheat > 0.0 and draw(secret, name, "lie") < cheat)
            seen += 1
            if draw(secret, name, "commitment") >= policy.rate(honest):
                standing += lies
                continue
            checked += 1
            if lies and draw(secret, name, "detect") < detect:
                caught += 1
                standing = 0
                break
            standing += lies
            honest += 1
        kept += standing
    return Forecast(caught / trials, checked / seen, kept / trials)


def schedule(shards: int, share: float, early: int = 0) -> list[float]:
    """A node that is honest in its first `early` commitments and then cheats on every 1/share-th.

    The lies come as late as their number allows, when the record is at its best.
    """
    later = shards - early
    lies = round(share * later)
    plan = [0.0] * shards
    for number in range(lies):
        plan[early + (number + 1) * later // lies - 1] = 1.0
    return plan


def needed_floor(
    target: float, cheats: Sequence[float], halving: int, detect: float = 1.0
) -> float | None:
    """The smallest floor, to 0.0001, that catches with probability `target`; None if none does."""
    if forecast(AuditPolicy(1.0, halving), cheats, detect).caught < target:
        return None
    low, high = 0, 10_000
    while high - low > 1:
        middle = (low + high) // 2
        reached = forecast(AuditPolicy(middle / 10_000, halving), cheats, detect).caught
        low, high = (low, middle) if reached >= target else (middle, high)
    return high / 10_000
