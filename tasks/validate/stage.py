"""The validate stage of one run: committed traces in, committed verdicts out."""

from dataclasses import replace
from typing import Any

from data_contracts.ids import model_slug
from infra.pool import JobResult, NodePool
from infra.storage import Manifest, RunLayout, Store, read_manifest, read_table
from tasks.generate.plan import Shard
from tasks.validate.audit import Auditor, Finding
from tasks.validate.commit import commit_verdicts, validate_job
from tasks.validate.config import ValidateConfig
from tasks.validate.errors import TracesMissing, ValidatorCrashed

PRODUCER = "validate"
CRASH_ATTEMPTS = 3
CHARGES = 16
"""Rejected traces that are named to the ledger; the table of verdicts has all."""


class Validator:
    """Judges shards through a pool of trusted nodes."""

    def __init__(self, store: Store, layout: RunLayout, config: ValidateConfig, pool: NodePool):
        self.store = store
        self.layout = layout
        self._config = config
        self._pool = pool
        self._auditor = Auditor(store, layout, config.audit)

    def run(self, shard: Shard) -> Manifest:
        """Verdicts of a shard, judged unless they are committed."""
        slug = model_slug(shard.model)
        done = read_manifest(self.store, self.layout.verdicts(slug, shard.shard_id))
        if done is not None:
            return done
        traces = read_manifest(self.store, self.layout.traces(slug, shard.shard_id))
        if traces is None:
            raise TracesMissing(self.layout.traces(slug, shard.shard_id))
        node_id = node_of(self.store, traces)
        decision = self._auditor.decide(slug, shard.shard_id, traces, node_id)
        result = self._judge(shard, decision.audited)
        finding = Finding.of(result.output["verdicts"])
        if not decision.audited and finding.failed:
            # Something is wrong that needed no model to be seen, so it is looked at in full.
            decision = replace(decision, audited=True)
            result = self._judge(shard, True)
            finding = Finding.of(result.output["verdicts"])
        if self._auditor.proves_lies(node_id, finding):
            # First: a run that is killed in between judges the shard again, and knows it again.
            self._pool.distrust(node_id, *self._charge(shard, traces, result))
        manifest = commit_verdicts(
            self.store, self.layout, shard, traces, result, self._config, decision,
            producer=PRODUCER,
        )  # fmt: skip
        self._auditor.note(manifest)
        return manifest

    def _judge(self, shard: Shard, audited: bool) -> JobResult:
        job = validate_job(self.store, self.layout, shard, self._config, audited)
        for _ in range(CRASH_ATTEMPTS):
            result = self._pool.submit(job).result()
            crashed = [row for row in result.output["verdicts"] if row["verdict"] == "crashed"]
            if not crashed:
                break
        else:
            if len(crashed) == len(result.output["verdicts"]):
                # Not one trace could be judged: that is the validator, not the traces.
                raise ValidatorCrashed(shard.shard_id, crashed[0]["figures"])
        return result

    def _charge(
        self, shard: Shard, traces: Manifest, result: JobResult
    ) -> tuple[str, dict[str, Any]]:
        """(what a node is excluded for, what shows it)."""
        lies = [row for row in result.output["verdicts"] if row["verdict"] == "rejected"]
        evidence = {
            "traces": traces.path,
            "traces_sha256": traces.sha256,
            "verdicts": self.layout.verdicts(model_slug(shard.model), shard.shard_id),
            "reasons": {row["trace_id"]: row["reasons"] for row in lies[:CHARGES]},
        }
        return f"{len(lies)} traces of {traces.path}: {lies[0]['reasons'][0]}", evidence


def node_of(store: Store, traces: Manifest) -> str:
    """The node that made a shard; empty where no row of it could be taken."""
    names: list[str] = read_table(store, traces.path, columns=["node_id"])["node_id"].to_pylist()
    return names[0] if names else ""
