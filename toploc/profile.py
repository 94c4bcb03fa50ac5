"""A calibration profile: the limits of one model revision, what they stand on, and the judgement.

Invariants: a profile covers the environments that it names and no others; what is beyond its limits
is refused, hard where it covers both sides and softly elsewhere; parsing refuses whatever `to_json`
would not have written.
"""

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from toploc.decision import (
    CHUNK_FIGURES,
    ROW_BANDS,
    TOKEN_BANDS,
    TRACE_FIGURES,
    Evidence,
    Limits,
    beyond_all,
    beyond_states,
    beyond_tokens,
    evidence_of_all,
    state_evidence,
    summary,
    token_evidence,
    too_exact,
)
from toploc.errors import MalformedProfile
from toploc.sampling import Claims
from toploc.verdict import Examination, ProofVerdict

FORMAT = 2

FIELDS = ("engine", "processor", "dtype", "attention")
"""Of an environment, `engine|processor|dtype|attention`."""


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Limits from half of the traces against the other half."""

    traces: int
    refused: int
    bound: float
    """Upper bound of the rate of false positives, exact (Clopper-Pearson), one-sided 95%."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Limits of one model revision, and what they stand on."""

    model: str
    revision: str
    rate: float
    """Share of honest traces that the limits are meant to refuse."""
    extrapolated: bool
    """Whether the rate is below what the number of traces can show by counting."""
    traces: int
    environments: tuple[str, ...]
    modes: tuple[str, ...]
    held_out: HeldOut
    limits: Mapping[str, Limits]
    """By dtype: a trace has to be within all limits of the one that its prover states, or of any
    where that is not covered."""

    def covers(self, environment: str) -> bool:
        """Whether an environment has been seen, as a whole."""
        return environment in self.environments

    def of(self, environment: str) -> Mapping[str, Limits]:
        """The limits, by dtype, that a prover may be within who states this environment."""
        if not self.covers(environment):
            return self.limits
        dtype = environment.split("|")[FIELDS.index("dtype")]
        return {dtype: self.limits[dtype]}

    def judge(
        self,
        examination: Examination,
        claims: Claims,
        claimed_logprobs: Tensor,
        environments: tuple[str, str],
    ) -> ProofVerdict:
        """The verdict of a trace; `environments` are the prover's and the verifier's.

        A trace beyond the limits is refused softly if one of them is not covered: nobody knows
        what an honest run gives there; else at the profile's rate of false refusals. Faults that
        no limit forgives are always a lie.
        """
        return self.judge_all([(examination, claims, claimed_logprobs, environments)])[0]

    def judge_all(
        self, texts: Sequence[tuple[Examination, Claims, Tensor, tuple[str, str]]]
    ) -> list[ProofVerdict]:
        """As `judge` of each trace; all are looked at together."""
        compared = [text[:3] for text in texts if text[0].comparison is not None]
        found = iter(evidence_of_all(compared) if compared else ())
        return [
            self._judged(examination, next(found), environments)
            if examination.comparison is not None
            else ProofVerdict(False, examination.faults)
            for examination, _, _, environments in texts
        ]

    def _judged(
        self, examination: Examination, found: Evidence, environments: tuple[str, str]
    ) -> ProofVerdict:
        reasons = beyond_all(found, self.of(environments[0]))
        seen = examination.figures | summary(found)
        return self._verdict(examination.faults, reasons, environments, seen)

    def judge_states(self, examination: Examination, environments: Iterable[str]) -> ProofVerdict:
        """The verdict of hidden states that give no tokens: those of a stage of a pipeline.

        The limits were measured behind the last layer, where differences have added up.
        """
        if examination.comparison is None:
            return ProofVerdict(False, examination.faults)
        reasons = beyond_all(state_evidence(examination), self.limits, beyond_states)
        return self._verdict(examination.faults, reasons, environments, examination.figures)

    def judge_tokens(
        self,
        examination: Examination,
        claims: Claims,
        claimed_logprobs: Tensor,
        environments: Iterable[str],
    ) -> ProofVerdict:
        """The verdict of the tokens alone, by the limits of the dtypes that the states fit.

        States that fit none, or that cannot be compared, leave all dtypes to the tokens.
        """
        limits = self.limits
        if examination.comparison is not None:
            states = state_evidence(examination)
            fits = {
                dtype: own
                for dtype, own in self.limits.items()
                if not beyond_states(states, own) and not too_exact(states, own)
            }
            limits = fits or limits
        reasons = beyond_all(token_evidence(claims, claimed_logprobs), limits, beyond_tokens)
        return self._verdict((), reasons, environments, {})

    def _verdict(
        self,
        faults: tuple[str, ...],
        reasons: list[str],
        environments: Iterable[str],
        seen: dict[str, int | float],
    ) -> ProofVerdict:
        if faults:
            return ProofVerdict(False, (*faults, *reasons), seen)
        unseen = [e for e in environments if not self.covers(e)]
        if reasons and unseen:
            reasons.insert(0, f"outside_calibration: {', '.join(map(repr, unseen))} was never seen")
        return ProofVerdict(
            not reasons,
            tuple(reasons),
            seen,
            soft=bool(reasons and unseen),
            rate=self.rate if reasons and not unseen else 0.0,
        )

    def to_json(self) -> str:
        """A text that `parse` reads."""
        return json.dumps({"format": FORMAT} | asdict(self), indent=1) + "\n"


def parse(text: str) -> Profile:
    """The profile of a text that `to_json` wrote; `MalformedProfile` for anything else."""
    try:
        given = json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise MalformedProfile(f"a calibration profile is not JSON: {error}") from error
    fields = _object(given, "profile", ("format", *Profile.__dataclass_fields__))
    if fields["format"] != FORMAT:
        raise MalformedProfile(
            f"profile format {fields['format']!r}; this version reads {FORMAT}: calibrate again"
        )
    held_out = _object(fields["held_out"], "held_out", tuple(HeldOut.__dataclass_fields__))
    environments = _texts(fields, "environments")
    if not environments or any(len(e.split("|")) != len(FIELDS) for e in environments):
        raise MalformedProfile(f"environments {environments}; allowed is {'|'.join(FIELDS)}")
    return Profile(
        model=_typed(fields, "model", str),
        revision=_typed(fields, "revision", str),
        rate=_rate(fields),
        extrapolated=_typed(fields, "extrapolated", bool),
        traces=_typed(fields, "traces", int),
        environments=environments,
        modes=_texts(fields, "modes"),
        held_out=HeldOut(
            _typed(held_out, "traces", int),
            _typed(held_out, "refused", int),
            _number(held_out, "bound"),
        ),
        limits=_limits(
            fields["limits"], {e.split("|")[FIELDS.index("dtype")] for e in environments}
        ),
    )


def _limits(given: Any, dtypes: set[str]) -> dict[str, Limits]:
    found = {}
    for dtype, own in _object(given, "limits", tuple(dtypes)).items():
        limits = _object(own, f"limits.{dtype}", tuple(Limits.__dataclass_fields__))
        found[dtype] = Limits(
            _bands(limits["trace"], "trace", TRACE_FIGURES, len(TOKEN_BANDS)),
            _bands(limits["chunk"], "chunk", CHUNK_FIGURES, len(ROW_BANDS)),
            _number(limits, "token_margin"),
            _number(limits, "least_error"),
        )
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError(f"a key appears twice among {[key for key, _ in pairs]}")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def _object(given: Any, where: str, names: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(given, dict) or set(given) != set(names):
        keys = sorted(given) if isinstance(given, dict) else type(given).__name__
        raise MalformedProfile(f"{where} has {keys}; needed are exactly {sorted(names)}")
    return given


def _typed(fields: Mapping[str, Any], name: str, kind: Callable[..., Any]) -> Any:
    value = fields[name]
    if type(value) is not kind or (kind is int and value < 0):
        raise MalformedProfile(f"{name} is {value!r}; needed is {kind.__name__}, not negative")
    return value


def _number(fields: Mapping[str, Any], name: str) -> float:
    value = fields[name]
    if type(value) not in (int, float) or not 0 <= value <= sys.float_info.max:
        raise MalformedProfile(f"{name} is {value!r}; needed is a number of at least 0")
    return float(value)


def _rate(fields: Mapping[str, Any]) -> float:
    value = _number(fields, "rate")
    if not 0.0 < value < 0.5:
        raise MalformedProfile(f"rate is {value!r}; needed is a number between 0 and 0.5")
    return value


def _texts(fields: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = fields[name]
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise MalformedProfile(f"{name} is {value!r}; needed is a list of texts")
    return tuple(value)


def _bands(
    given: Any, where: str, names: tuple[str, ...], count: int
) -> dict[str, tuple[float, ...]]:
    fields = _object(given, where, names)
    for name, values in fields.items():
        if not isinstance(values, list) or len(values) != count:
            raise MalformedProfile(f"{where}.{name} is {values!r}; needed are {count} numbers")
    return {
        name: tuple(_number({name: value}, name) for value in values)
        for name, values in fields.items()
    }
