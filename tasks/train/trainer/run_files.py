"""Names and contents of the files by which a trainer process is driven."""

import json
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

from infra.models.registry import COMPUTE_DTYPE
from infra.models.revision import directory_revision
from infra.storage.local import write_atomic
from tasks.train.objective import ObjectiveConfig
from tasks.train.trainer.config import FREE, TrainerConfig
from tasks.train.trainer.errors import BadSettings

SETTINGS = "trainer.json"


class RunSettings(BaseModel):
    """What a run's trainer is started with.

    The same at each start, but for where the model lies and for resources (`config.FREE`).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    model_dir: Path = Field(description="The start model, policy version 0.")
    seed: int = Field(ge=0, lt=2**63, description="Seed of the order of samples and of adapters.")
    config: TrainerConfig = Field(description="How the policy is trained.")
    objective: ObjectiveConfig = Field(description="The policy loss.")
    revision: str = Field(
        default_factory=lambda given: directory_revision(given["model_dir"], COMPUTE_DTYPE),
        description="Of the start model's files.",
    )

    def write(self, run_dir: Path) -> None:
        """Write trainer.json; `BadSettings` if the run has others that it must keep."""
        path = run_dir / SETTINGS
        text = json.dumps(self.model_dump(mode="json"), indent=2, sort_keys=True) + "\n"
        try:
            write_atomic(path, text.encode(), overwrite=False)
        except FileExistsError:
            old, new = self.read(run_dir)._kept(), self._kept()
            if differing := [name for name in new if old[name] != new[name]]:
                raise BadSettings(path, f"it has another {' and '.join(differing)}") from None
            write_atomic(path, text.encode(), overwrite=True)

    def _kept(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude={"model_dir": True, "config": FREE})

    @classmethod
    def read(cls, run_dir: Path) -> Self:
        """The settings of a run."""
        path = run_dir / SETTINGS
        try:
            return cls.model_validate_json(path.read_bytes())
        except (OSError, ValueError) as error:
            raise BadSettings(path, f"not readable ({error})") from error


def selection_path(run_dir: Path, step: int) -> Path:
    """The samples of a rollout step."""
    return run_dir / "selection" / f"{_name(step)}.parquet"


def checkpoint_path(run_dir: Path, step: int) -> Path:
    """The trainer's state after a rollout step."""
    return run_dir / "checkpoints" / _name(step)


def weights_path(run_dir: Path, step: int) -> Path:
    """The policy after a rollout step: its version of that number."""
    return run_dir / "weights" / _name(step)


def checkpointed_steps(run_dir: Path) -> list[int]:
    """Steps with a checkpoint, the oldest first."""
    return sorted(
        int(path.name.removeprefix("step_")) for path in run_dir.glob("checkpoints/step_*")
    )


def _name(step: int) -> str:
    return f"step_{step:06d}"
