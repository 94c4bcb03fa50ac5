"""The policy as a module that gives log-probabilities of packed rows.

Invariants: weights are read from safetensors only, no code of the directory is run; master weights
are float32; a model whose packed samples do not come out as they do alone is refused at the start.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM
from transformers.utils import logging

from tasks.train.trainer import attention
from tasks.train.trainer.config import TrainerConfig
from tasks.train.trainer.errors import ModelUnsupported
from tasks.train.trainer.logprobs import head_logprobs
from tasks.train.trainer.lora import add_adapters, lora_layers
from tasks.train.trainer.packed import PackedRow, pack_row
from tasks.train.trainer.sample import Sample


class Policy(nn.Module):
    """A causal language model whose forward pass is that of a packed row."""

    def __init__(self, model: Any, head_rows: int) -> None:
        super().__init__()
        self.model = model
        self._head_rows = head_rows

    def forward(self, row: PackedRow) -> tuple[Tensor, Tensor]:
        """Log-probabilities and entropies of the row's output tokens, float32 [N]."""
        hidden = self.model.base_model(
            input_ids=row.ids, position_ids=row.positions, use_cache=False, plan=row.attention
        ).last_hidden_state[0]
        return head_logprobs(
            hidden.index_select(0, row.sources),
            self.model.get_output_embeddings().weight,
            row.targets,
            row.inverse_temperatures,
            self._head_rows,
        )

    @property
    def layers(self) -> nn.ModuleList:
        """The decoder layers."""
        found: nn.ModuleList = self.model.base_model.layers
        return found

    @contextmanager
    def without_adapters(self) -> Iterator[None]:
        """The model that the adapters were put on."""
        for module in lora_layers(self.model).values():
            module.enable_adapters(False)
        try:
            yield
        finally:
            for module in lora_layers(self.model).values():
                module.enable_adapters(True)


def load_policy(model_dir: Path, config: TrainerConfig, trained: bool) -> Policy:
    """The policy of a model directory on the CPU in float32; without gradients if not `trained`.

    New adapters draw their weights from torch's global generator.
    """
    attention.register()
    logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(
        model_dir,
        dtype=torch.float32,
        local_files_only=True,
        use_safetensors=True,
        attn_implementation=attention.NAME,
    )
    head = model.get_output_embeddings()
    if not isinstance(getattr(model.base_model, "layers", None), nn.ModuleList):
        raise ModelUnsupported(model_dir, "its decoder layers are not a list named `layers`")
    if type(head) is not nn.Linear or head.bias is not None:
        raise ModelUnsupported(model_dir, "its head is not a linear layer without bias")
    policy = Policy(model, config.head_rows)
    _probe(policy, model_dir)
    policy.requires_grad_(trained)
    if trained and config.lora is not None:
        add_adapters(model, config.lora)
    if trained and config.activation_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
        for layer in policy.layers:
            layer.training = True  # this layer's own switch; below it all stays without dropout
    return policy


@torch.no_grad()
def _probe(policy: Policy, model_dir: Path) -> None:
    """Refuse a model whose samples leak into each other, or that does more than body and head."""
    vocabulary = policy.model.get_output_embeddings().weight.shape[0]
    cpu = torch.device("cpu")

    def sample(name: str, first: int, prompt: int, output: int) -> Sample:
        ids = [(first + 7 * at) % vocabulary for at in range(prompt + output)]
        zeros = np.zeros(output, dtype=np.float32)
        return Sample(name, tuple(ids[:prompt]), tuple(ids[prompt:]), zeros, 0.0)

    before, after = sample("before", 3, 5, 6), sample("after", 11, 4, 8)
    packed = policy(pack_row([[before], [after]], cpu, padded=True))[0][6:]
    alone = policy(pack_row([[after]], cpu, padded=True))[0]
    if not torch.allclose(packed, alone, atol=1e-4):
        raise ModelUnsupported(model_dir, "a sample packed behind another is not as it is alone")
    ids = torch.tensor([after.prompt_ids + after.output_ids])
    row = pack_row([[after]], cpu, padded=True)
    logits = policy.model(input_ids=ids, use_cache=False, plan=_whole(row)).logits[0]
    direct = logits[3:-1].log_softmax(-1).gather(1, row.targets[:, None])[:, 0]
    if not torch.allclose(direct, alone, atol=1e-4):
        raise ModelUnsupported(model_dir, "its logits are not the head on the last hidden state")


def _whole(row: PackedRow) -> attention.AttentionPlan:
    """The plan of the row's only sample with its last token."""
    return attention.plan_attention([torch.arange(row.tokens + 1)], row.tokens + 1, padded=True)
