"""Low-rank adapters through peft.

peft is imported when it is used: its import takes seconds, which a trainer without adapters should
not spend at each start.
"""

from pathlib import Path
from typing import Any

from torch import Tensor

from tasks.train.trainer.config import LoraSettings

ADAPTER = "default"
WEIGHTS = "adapter_model.safetensors"


def add_adapters(model: Any, settings: LoraSettings) -> None:
    """Put adapters into the model in place; only they are trained from now on."""
    from peft import inject_adapter_in_model

    inject_adapter_in_model(_config(settings), model, ADAPTER)


def lora_layers(model: Any) -> dict[str, Any]:
    """The layers with an adapter by name."""
    return {name: module for name, module in model.named_modules() if hasattr(module, "lora_A")}


def save_settings(settings: LoraSettings, directory: Path) -> None:
    """Write adapter_config.json."""
    config = _config(settings)
    config.inference_mode = True
    config.save_pretrained(str(directory))


def saved_name(name: str) -> str:
    """The name that peft gives to an adapter's parameter in its file."""
    return f"base_model.model.{name.replace(f'.{ADAPTER}.', '.')}"


def factors(layer: Any) -> tuple[Tensor, Tensor, float]:
    """A, B and alpha/rank of a layer; its weight changes by alpha/rank * B A."""
    down, up = layer.lora_A[ADAPTER].weight, layer.lora_B[ADAPTER].weight
    return down, up, float(layer.scaling[ADAPTER])


def _config(settings: LoraSettings) -> Any:
    from peft import LoraConfig

    return LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,  # type: ignore[arg-type]
        target_modules="all-linear" if settings.targets is None else list(settings.targets),
        task_type="CAUSAL_LM",
    )
