"""Where the rounds of a run keep their files, below `runs/<run_id>/rl/`.

    rl.toml                                  resolved config, code version (beside `rl/`)
    rl/stream.json                           name of the broadcast stream, drawn once
    rl/rollouts/step_N/<uuid>.parquet        accepted rollouts and their manifests
    rl/held_out/step_N/<uuid>.parquet        held-out answers of policy version N
    rl/steps/step_N.json                     what step N is made of, written before it is trained
    rl/evaluations/step_N.json               held-out figures of policy version N
    rl/metrics.parquet, tensorboard/         held-out figures and idle nodes, a row per version
    rl/trainer/                              the trainer's own directory (tasks.train.trainer)
    rl/versions/                             what the broadcast origin serves
    rl/report/index.html, curve.svg          the learning curve and its figures

Invariant: rollout step N (from 1) makes policy version N; version 0 is the start policy.
"""

from dataclasses import dataclass

from infra.storage import RunLayout
from tasks.train.rollouts.job import RolloutJob, is_held_out


@dataclass(frozen=True)
class RlLayout:
    """Paths of one run, relative to its store."""

    run: RunLayout

    @property
    def record(self) -> str:
        """Resolved config and code version."""
        return f"{self.run.root}/rl.toml"

    @property
    def root(self) -> str:
        """Directory of the rounds."""
        return f"{self.run.root}/rl"

    @property
    def stream(self) -> str:
        """Name of the broadcast stream."""
        return f"{self.root}/stream.json"

    def folder(self, job: RolloutJob) -> str:
        """Where the accepted rollouts of a job are committed."""
        kind = "held_out" if is_held_out(job) else "rollouts"
        return f"{self.root}/{kind}/step_{job.step}"

    def upload(self, job: RolloutJob, attempt: int) -> str:
        """Where a node may write its rollouts of a job; nothing here is trusted."""
        return self.run.upload("rollouts", f"{job.name}-{attempt}")

    def step(self, step: int) -> str:
        """What a step is made of."""
        return f"{self.root}/steps/step_{step:06d}.json"

    def evaluation(self, version: int) -> str:
        """Held-out figures of a version."""
        return f"{self.root}/evaluations/step_{version:06d}.json"

    @property
    def trainer(self) -> str:
        """The trainer's directory."""
        return f"{self.root}/trainer"

    @property
    def versions(self) -> str:
        """The origin's directory."""
        return f"{self.root}/versions"

    @property
    def curve(self) -> str:
        """The learning curve as an image."""
        return f"{self.root}/report/curve.svg"

    @property
    def report(self) -> str:
        """The report as a page."""
        return f"{self.root}/report/index.html"
