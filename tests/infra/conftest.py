"""A tiny random Llama with a byte-level tokenizer, in a directory like any model's."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|><think>\n{% endif %}"
)
SPECIALS = ["<|pad|>", "<|end|>", "<|user|>", "<|assistant|>", "<think>", "</think>"]
END_ID = 1


def tokenizer(template: str = TEMPLATE) -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: i for i, token in enumerate([*SPECIALS, *alphabet])}
    core = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(SPECIALS)
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token="<|end|>",
        pad_token="<|pad|>",
        extra_special_tokens=["<|user|>", "<|assistant|>", "<think>", "</think>"],
    )
    wrapped.chat_template = template
    return wrapped


def save_tiny(directory: Path, seed: int = 0, context: int = 256, template: str = TEMPLATE) -> Path:
    words = tokenizer(template)
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=context,
        eos_token_id=END_ID,
        pad_token_id=0,
        bos_token_id=None,
        initializer_range=0.1,
    )
    LlamaForCausalLM(config).save_pretrained(directory)
    words.save_pretrained(directory)
    return directory


@pytest.fixture(scope="session")
def make_model(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[..., Path]:
    def make(**settings: object) -> Path:
        return save_tiny(tmp_path_factory.mktemp("model"), **settings)  # type: ignore[arg-type]

    return make


@pytest.fixture(scope="session")
def tiny_model(make_model: Callable[..., Path]) -> Path:
    return make_model()
