"""A Llama model in a GGUF file to a Hugging Face directory, exactly.

Only what such a file holds is used: settings, tensors, vocabulary, merges, chat template. Reading
it here instead of through transformers takes a third of the time, keeps digits split as the model
was trained, and does not leave a model behind that remembers being quantised.

Invariants: tensors are dequantised to float32 and stored as they are; the same file and library
versions give the same bytes.
"""

import re
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging

NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
TENSOR_NAME = re.compile(r"(?:blk\.(\d+)\.)?(\w+)\.weight")
CONTROL_TOKEN = 3


def convert(source: Path, directory: Path) -> None:
    """Write float32 safetensors, configs, tokenizer and chat template; ValueError says why not."""
    reader = gguf.GGUFReader(source)
    settings = {name: field.contents() for name, field in reader.fields.items()}
    known = (settings["general.architecture"], settings["tokenizer.ggml.pre"])
    if known != ("llama", "smollm"):
        raise ValueError(f"architecture and tokenizer are {known}, expected ('llama', 'smollm')")
    tokens = {
        f"{use}_token_id": int(settings[f"tokenizer.ggml.{key}_token_id"])
        for use, key in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"), ("unk", "unknown"))
    }
    config = _config(settings, tokens)
    with torch.device("meta"):
        model: Any = LlamaForCausalLM(config)
    loaded = model.load_state_dict(_weights(reader, config), strict=False, assign=True)
    if loaded.unexpected_keys or loaded.missing_keys != ["lm_head.weight"]:
        raise ValueError(f"tensors do not fit the architecture: {loaded}")
    model.tie_weights()
    del tokens["unk_token_id"]
    model.generation_config = GenerationConfig(**tokens)
    logging.disable_progress_bar()
    model.save_pretrained(directory)
    _tokenizer(settings).save_pretrained(directory)


def _config(settings: dict[str, Any], tokens: dict[str, int]) -> Any:
    heads = int(settings["llama.attention.head_count"])
    return LlamaConfig(
        vocab_size=len(settings["tokenizer.ggml.tokens"]),
        hidden_size=int(settings["llama.embedding_length"]),
        intermediate_size=int(settings["llama.feed_forward_length"]),
        num_hidden_layers=int(settings["llama.block_count"]),
        num_attention_heads=heads,
        num_key_value_heads=int(settings["llama.attention.head_count_kv"]),
        max_position_embeddings=int(settings["llama.context_length"]),
        rms_norm_eps=float(settings["llama.attention.layer_norm_rms_epsilon"]),
        rope_parameters={"rope_type": "default", "rope_theta": settings["llama.rope.freq_base"]},
        tie_word_embeddings=True,
        **tokens,
    )


def _weights(reader: Any, config: Any) -> dict[str, Tensor]:
    weights: dict[str, Tensor] = {}
    for tensor in reader.tensors:
        found = TENSOR_NAME.fullmatch(tensor.name)
        if not found or found[2] not in NAMES:
            raise ValueError(f"unexpected tensor {tensor.name!r}")
        layer, part = found.groups()
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
        if part in ("attn_q", "attn_k"):
            heads = config.num_attention_heads if part == "attn_q" else config.num_key_value_heads
            values = _unpermuted(values, heads)
        name = NAMES[part] if layer is None else f"model.layers.{layer}.{NAMES[part]}"
        weights[f"{name}.weight"] = torch.from_numpy(np.array(values, order="C"))
    return weights


def _unpermuted(values: Any, heads: int) -> Any:
    """Rotary pairs side by side (GGUF) to halves (Hugging Face)."""
    pairs = values.reshape(heads, values.shape[0] // heads // 2, 2, values.shape[1])
    return pairs.swapaxes(1, 2).reshape(values.shape)


def _tokenizer(settings: dict[str, Any]) -> Any:
    words: list[str] = settings["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in settings["tokenizer.ggml.merges"]]
    core = Tokenizer(models.BPE(vocab={word: at for at, word in enumerate(words)}, merges=merges))
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    kinds = settings["tokenizer.ggml.token_type"]
    control = [word for word, kind in zip(words, kinds, strict=True) if kind == CONTROL_TOKEN]
    core.add_special_tokens(control)
    tokenizer: Any = PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token=words[settings["tokenizer.ggml.bos_token_id"]],
        eos_token=words[settings["tokenizer.ggml.eos_token_id"]],
        pad_token=words[settings["tokenizer.ggml.padding_token_id"]],
        unk_token=words[settings["tokenizer.ggml.unknown_token_id"]],
    )
    tokenizer.chat_template = settings["tokenizer.chat_template"]
    return tokenizer
