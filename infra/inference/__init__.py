"""Inference engines behind one protocol (`protocol.py`)."""

from infra.inference.protocol import Engine
from infra.models import registry


def load_engine(model_id: str, threads: int = 1) -> Engine:
    """Load a model by registry id or by directory, on this machine."""
    # torch and transformers take seconds to import; the protocol alone does not need them loaded.
    from infra.inference.transformers_engine import TransformersEngine

    return TransformersEngine(
        registry.materialise(model_id),
        model_id,
        registry.revision(model_id),
        dtype=registry.get(model_id).dtype,
        threads=threads,
    )
