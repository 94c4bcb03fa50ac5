"""Inference engines behind one protocol (`protocol.py`)."""

from typing import TYPE_CHECKING

from infra.inference.protocol import Engine
from infra.models import registry

if TYPE_CHECKING:
    from infra.inference.transformers_engine import TransformersEngine

__all__ = ["Engine", "load_engine"]


def load_engine(
    model_id: str, threads: int = 1, *, dtype: str | None = None, attention: str | None = None
) -> "TransformersEngine":
    """Load a model by registry id or by directory, on this machine.

    `dtype` and `attention` are the registry's and the engine's own unless given. The revision is
    the registry's all the same: calibration asks how far other ones come to it.
    """
    # torch and transformers take seconds to import; the protocol alone does not need them loaded.
    from infra.inference.loading import ATTENTIONS
    from infra.inference.transformers_engine import TransformersEngine

    return TransformersEngine(
        registry.materialise(model_id),
        model_id,
        registry.revision(model_id),
        dtype=dtype or registry.get(model_id).dtype,
        threads=threads,
        attention=attention or ATTENTIONS[0],
    )
