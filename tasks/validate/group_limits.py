"""The judges that a group's replay asks: a calibration profile's limits, or the config's.

Invariants: the same limits as for the traces of single nodes, and the same environments: what a
stage did on hardware that nobody has calibrated is refused softly. Stages are judged by limits that
were measured behind the last layer; inner stages are nearer to the verifier than that.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from infra.inference.protocol import PROOF_ROWS
from infra.inference.transformers_engine import TransformersEngine
from tasks.validate.check import (
    TOPK,
    ModelFacts,
    false_ending,
    fixed_limits,
    tokens_by_fixed_limits,
)
from tasks.validate.config import ValidateConfig
from toploc.sampling import SamplingRule, examine
from toploc.verdict import ProofVerdict, examine_proofs, judge_examined, refuse


class GroupLimits:
    """Judges of one trace of a group; see ProofJudge and TokenJudge of `toploc.replay`."""

    def __init__(
        self,
        row: Mapping[str, Any],
        environments: Sequence[str],
        engine: TransformersEngine,
        config: ValidateConfig,
    ):
        """`row` is the last stage's, `environments` are what the stages say that they ran on."""
        self._row = row
        self._environments = environments
        self._engine = engine
        self._facts = ModelFacts.of(engine, config)
        self._config = config
        self._profile = self._facts.profile

    def proof(self, stage: int, hidden: Tensor, proofs: bytes) -> ProofVerdict:
        """Proofs of a stage against hidden states [rows, hidden] in bf16."""
        found = examine_proofs(hidden, proofs, TOPK, PROOF_ROWS)
        if self._profile is None:
            return judge_examined(found, fixed_limits(self._config))
        return self._profile.judge_states(found, self._sides(stage))

    def tokens(self, states: Tensor, proofs: bytes) -> ProofVerdict:
        """The trace's tokens against normed states [rows, hidden]."""
        row = self._row
        sampling = json.loads(row["sampling"])
        rule = SamplingRule(
            sampling["temperature"], sampling["top_p"], sampling["top_k"], sampling["min_p"]
        )
        ids, logprobs = row["output_ids"], torch.tensor(row["logprobs"])
        ending = false_ending(row, sampling["max_tokens"], sampling["stop"], self._facts)
        if ending:
            return refuse(ending)
        if len(logprobs) != len(ids):
            return refuse(f"logprobs_missing: {len(logprobs)} for {len(ids)} tokens; one each")
        claims = examine(self._engine.logits(states), torch.tensor(ids), row["seed"], rule)
        sides = self._sides(len(self._environments) - 1)
        if self._profile is None:
            return tokens_by_fixed_limits(claims, row, self._config, sides)
        found = examine_proofs(states.to(torch.bfloat16), proofs, TOPK, PROOF_ROWS)
        return self._profile.judge_tokens(found, claims, logprobs, sides)

    def _sides(self, stage: int) -> tuple[str, str]:
        return self._environments[stage], self._facts.environment
