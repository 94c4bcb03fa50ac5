"""A model cut by layers into stages, as a pipeline of nodes holds it.

Invariants: a stage shares the weights of the model that it is cut from; stage 0 embeds tokens, the
last stage ends with the model's final norm, the others give the sum that their last layer leaves
(not normed). The stages one after the other compute what the whole model does.
"""

import copy
import itertools
from typing import Any

import torch
from torch import Tensor, nn

from infra.inference.errors import EngineUnsupported
from infra.inference.loading import CausalModel


class ModelStages:
    """All stages of a model; see `toploc.replay.StagedModel`."""

    def __init__(self, model: CausalModel, stages: int) -> None:
        if not 1 <= stages <= model.layers:
            raise EngineUnsupported(
                type(model.body).__name__,
                f"{model.layers} layers cannot be cut into {stages} stages; give 1 to "
                f"{model.layers}",
            )
        self.vocab_size = model.vocab_size
        edges = [model.layers * stage // stages for stage in range(stages + 1)]
        self._bodies = [_cut(model.body, first, end) for first, end in itertools.pairwise(edges)]

    def run(self, stage: int, rows: Tensor, cache: Any = None) -> Tensor:
        """Output [positions, hidden] of a stage; positions go on where a cache ends."""
        return self.run_batch(stage, rows[None], cache)[0]

    def run_batch(self, stage: int, rows: Tensor, cache: Any = None) -> Tensor:
        """As `run`, of several texts of one length: [texts, positions(, hidden)]."""
        body = self._bodies[stage]
        given = {"input_ids": rows} if stage == 0 else {"inputs_embeds": rows.to(body.dtype)}
        with torch.inference_mode():
            out: Tensor = body(
                **given, past_key_values=cache, use_cache=cache is not None
            ).last_hidden_state
        return out


def _cut(body: Any, first: int, end: int) -> Any:
    """A decoder with the layers from `first` up to `end`, on the same weights."""
    layers = body.layers
    shared = {id(weight): weight for weight in body.parameters()}
    part = copy.copy(body)
    part._modules = dict(body._modules)
    part.config = copy.deepcopy(body.config)
    part.config.num_hidden_layers = end - first
    part.layers = copy.deepcopy(layers[first:end], shared)
    for index, layer in enumerate(part.layers):
        layer.self_attn.layer_idx = index
    if end < len(layers):
        part.norm = nn.Identity()
    return part
