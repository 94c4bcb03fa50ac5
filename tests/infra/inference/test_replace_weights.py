"""Weights replaced in place give what a fresh engine of them gives."""

import pytest
from safetensors.torch import load_file, save_file

from infra.inference.errors import WeightsDoNotFit
from infra.inference.protocol import Request, SamplingParams
from infra.inference.transformers_engine import TransformersEngine

PARAMS = SamplingParams(max_tokens=12)


def tokens(engine):
    ids, _ = engine.render([{"role": "user", "content": "hello"}])
    batch = [Request(str(seed), tuple(ids), seed) for seed in range(4)]
    return [done.output_ids for done in engine.generate(batch, PARAMS)]


def test_new_weights_in_place_are_those_of_a_fresh_engine(make_model):
    first, second = make_model(), make_model(seed=1)
    engine, fresh = (TransformersEngine(path, "tiny", "r") for path in (first, second))
    before = tokens(engine)
    engine.replace_weights(second, "r2")
    assert engine.revision == "r2"
    assert tokens(engine) == tokens(fresh) != before
    engine.replace_weights(first, "r1")
    assert tokens(engine) == before


def test_weights_of_another_shape_change_nothing(make_model, tmp_path):
    engine = TransformersEngine(make_model(), "tiny", "r")
    before = tokens(engine)
    with pytest.raises(WeightsDoNotFit):
        engine.replace_weights(tmp_path, "r2")
    weights = load_file(make_model(seed=1) / "model.safetensors")
    name = sorted(weights)[-1]
    weights[name] = weights[name][..., :-1].contiguous()
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(WeightsDoNotFit, match="shape"):
        engine.replace_weights(tmp_path, "r2")
    assert (engine.revision, tokens(engine)) == ("r", before)
