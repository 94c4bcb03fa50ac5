"""The committed nano models: size on disk, shape, and that each solves some tasks and not all."""

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from transformers import LlamaForCausalLM

from tasks.train.curriculum import KINDS, held_out
from tasks.train.errors import CannotGrow
from tasks.train.evaluate import SolveRate, load, solve_rate
from tasks.train.grow import grow
from tasks.train.nano import DEFAULT_OUT, make_tokenizer
from tasks.train.nano_card import render
from tasks.train.nano_sizes import HIDDEN, SIZES
from tasks.train.sft import SftResult, StepMetrics

NAMES = list(SIZES)


def weights(name: str) -> Path:
    return DEFAULT_OUT / name / "model.safetensors"


def test_all_three_take_at_most_eight_megabytes() -> None:
    assert sum(weights(name).stat().st_size for name in NAMES) < 8 * 2**20


@pytest.mark.parametrize("name", NAMES)
def test_files_are_bfloat16_and_of_the_stated_shape(name: str) -> None:
    with safe_open(weights(name), "pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}
    assert {str(tensor.dtype) for tensor in tensors.values()} == {"torch.bfloat16"}
    assert "lm_head.weight" not in tensors, "embeddings are tied"
    assert tensors["model.embed_tokens.weight"].shape[1] == HIDDEN >= 128
    card = (DEFAULT_OUT / name / "README.md").read_text()
    assert f"{sum(tensor.numel() for tensor in tensors.values()):,} parameters" in card


@pytest.mark.parametrize("name", NAMES)
def test_solves_some_held_out_tasks_and_not_all(name: str) -> None:
    engine = load(DEFAULT_OUT / name, f"tracemill/nano-{name}")
    tasks = [task for kind in KINDS for task in held_out(kind, 12)]
    rate = solve_rate(engine, tasks, temperature=1.0)
    engine.close()
    assert rate.tasks == 12 * len(KINDS)
    assert 0 < rate.solved < 1


def test_larger_sizes_state_higher_rates() -> None:
    def stated(name: str) -> float:
        card = (DEFAULT_OUT / name / "README.md").read_text()
        rows = [line.split("|") for line in card.splitlines() if line.startswith("| ")][1:]
        assert [row[1].strip() for row in rows] == [kind.name for kind in KINDS]
        return sum(float(row[3]) for row in rows) / len(rows)

    assert stated("s") < stated("m") < stated("l")


def test_script_builds_the_committed_tokenizer(tmp_path: Path) -> None:
    make_tokenizer().save_pretrained(tmp_path)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        assert (tmp_path / name).read_bytes() == (DEFAULT_OUT / "s" / name).read_bytes()


def test_a_grown_size_computes_what_its_parent_did() -> None:
    tokenizer = make_tokenizer()
    torch.manual_seed(0)
    small = LlamaForCausalLM(SIZES["s"].config(tokenizer)).eval()
    ids = torch.arange(64).unsqueeze(0)
    with torch.no_grad():
        before = small(input_ids=ids).logits
        for name in ("m", "l"):
            grown = grow(small, SIZES[name].config(tokenizer)).eval()
            assert grown.num_parameters() > 2 * small.num_parameters()
            torch.testing.assert_close(grown(input_ids=ids).logits, before, rtol=1e-4, atol=1e-4)


def test_growing_refuses_to_shrink() -> None:
    tokenizer = make_tokenizer()
    large = LlamaForCausalLM(SIZES["m"].config(tokenizer))
    with pytest.raises(CannotGrow, match="num_hidden_layers is 3 and would become 2"):
        grow(large, SIZES["s"].config(tokenizer))


def test_card_states_what_was_measured() -> None:
    result = SftResult(
        steps=1,
        examples=32,
        too_long=0,
        tokens=1000,
        padding_share=0.1,
        seconds=99.0,
        cpu_seconds=12.4,
        history=(StepMetrics(0, 0.5, 1e-3, 1.0, 500),),
    )
    sampled, greedy = SolveRate(256, 0.25, 0.5, ()), SolveRate(256, 0.75, 0.8, ())
    rates = {kind.name: (sampled, greedy) for kind in KINDS}
    text = render(SIZES["s"], 283, 364_544, result, rates)
    assert (
        "364,544 parameters" in text and "12 CPU seconds" in text and "256 tasks per kind" in text
    )
    assert text.count("| 0.250 | 0.500 | 0.750 |") == len(KINDS)
