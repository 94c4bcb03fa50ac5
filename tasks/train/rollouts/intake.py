"""The trusted side: an upload comes in, rollouts that may be trained on go out, or a refusal.

In order: the file (size, hash, schema, in a confined child), what it says against what was asked
(`claims`), the secret choice whether it is checked, the check by a prefill on a trusted node
(`check`), rewards and advantages of our own (`rewards`), the commit (`accepted`). Invariants: every
row that came in is committed or set aside with a reason; one row that only a lie explains refuses
the whole file and excludes its node; nothing of a refused file is used. It is the check that a pool
asks for: the pool books the verdict, and an exception refuses the upload.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from data_contracts import rollouts as contract
from data_contracts import validate as verdicts_contract
from data_contracts.errors import TableBlocked
from data_contracts.text import table_from_rows
from infra.inference.prompts import ChatTokenizer
from infra.models import registry
from infra.pool import JobResult, NodePool
from infra.pool.errors import PoolClosed, PoolError
from infra.storage import (
    Manifest,
    RunLayout,
    StageCount,
    Store,
    check,
    commit_table,
    discard,
    quarantine_rows,
)
from tasks.train.objective.config import LengthConfig, ObjectiveConfig
from tasks.train.rollouts.accepted import Accepted
from tasks.train.rollouts.check import NO_VERSION, CheckPayload, check_job
from tasks.train.rollouts.claims import faults, forged
from tasks.train.rollouts.config import TrustConfig
from tasks.train.rollouts.errors import CheckCrashed, RolloutsRefused
from tasks.train.rollouts.job import KIND, Broadcast, RolloutJob
from tasks.train.rollouts.rewards import rewarded
from tasks.train.rollouts.standing import EXCLUDED, Standing, is_lie
from tasks.train.rollouts.uploads import BadFile, UploadReader
from tasks.validate.audit import Auditor, Decision, Finding
from tasks.validate.commit import ACCEPTED, validator_name

CHECK_ATTEMPTS = 3
MOST_FAILED = 0.02
"""Share of an upload's rows, but always one row, that a node may say it failed at."""

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Trusted:
    """What our side knows and nodes do not."""

    answers: Mapping[str, str]
    """Task id -> verification_info."""
    tokenizer: ChatTokenizer
    vocabulary: int
    """Token ids of the policy are below it."""
    lengths: LengthConfig
    objective: ObjectiveConfig
    broadcast: Broadcast
    folder: Callable[[RolloutJob], str]
    """Where the accepted rollouts of a job are committed."""
    final: Callable[[RolloutJob], bool]
    """Whether a job was trained on or is in an evaluation: then it cannot be taken back."""


@dataclass(frozen=True)
class _Upload:
    job: RolloutJob
    result: JobResult
    sha256: str
    rows: Rows

    @property
    def node_id(self) -> str:
        """Who made it."""
        return self.result.node_id

    @property
    def held(self) -> str:
        """Name of what is kept of this very upload."""
        return f"{self.job.name}-{self.sha256[:16]}"


class Intake:
    """Takes the uploads of one run; several at once, but for one job one after the other.

    They are settled one after the other, so that each is judged by all that came before.
    """

    def __init__(
        self,
        store: Store,
        layout: RunLayout,
        pool: NodePool,
        standing: Standing,
        reader: UploadReader,
        config: TrustConfig,
        trusted: Trusted,
    ):
        self._store = store
        self._layout = layout
        self._pool = pool
        self._config = config
        self._trusted = trusted
        self.standing = standing
        self._calibration = registry.revision(config.calibrated_by) if config.calibrated_by else ""
        self._auditor = Auditor(store, layout, config.check.audit)
        self._reader = reader
        self._turn = threading.Lock()
        """Held while an upload is settled."""
        self.accepted = Accepted(store, layout, standing, trusted.folder, trusted.final)

    def take(self, job: RolloutJob, result: JobResult) -> Manifest:
        """Accept an upload, or raise RolloutsRefused; CheckCrashed is our own fault."""
        try:
            done = self.accepted.of(job)
            return self._take(job, result) if done is None else done
        finally:
            # What is refused is in quarantine.
            self.throw_away(result)

    def throw_away(self, result: JobResult) -> None:
        """Delete an upload."""
        for file in result.files:
            self._store.delete(file.path)

    def _take(self, job: RolloutJob, result: JobResult) -> Manifest:
        node_id = result.node_id
        if node_id in self.standing.excluded:
            raise RolloutsRefused(job.name, node_id, [EXCLUDED], lie=True)
        try:
            sha256, rows = self._reader.read_file(self._store, result, job.samples)
        except BadFile as bad:
            raise self._refused(job, node_id, [bad.reason], {"sha256": bad.sha256}) from bad
        upload = _Upload(job, result, sha256, rows)
        found = faults(job, rows, node_id, self._trusted.tokenizer, self._trusted.vocabulary)
        if found:
            raise self._refuse(upload, found)
        failed = sum(row["status"] == "engine_error" for row in rows)
        if failed > max(1.0, MOST_FAILED * len(rows)):
            raise self._refuse(upload, {"": f"too_many_failed: {failed} of {len(rows)} samples"})
        received = commit_table(
            self._store,
            self._layout.received(KIND, upload.held),
            table_from_rows(rows, contract.SCHEMA),
            schema=contract.SCHEMA,
            producer=KIND,
        )
        try:
            return self._checked(upload, received)
        finally:
            discard(self._store, received.path)

    def _checked(self, upload: _Upload, received: Manifest) -> Manifest:
        """Have an upload checked, in full where there is a reason, and settle it."""
        decision = self._auditor.decide(KIND, upload.held, received, upload.node_id)
        while True:
            # Somebody copied, and only a prefill can say who.
            audited = decision.audited or bool(self.accepted.repeated(upload.job, upload.rows))
            # Nothing is held meanwhile: other uploads are checked at the same time.
            verdicts = self._check(upload.job.name, upload.job.model, received.path, audited)
            with self._turn:
                # What needs no model to be seen is looked at in full too.
                reason = Finding.of(verdicts).failed or self.accepted.repeated(
                    upload.job, upload.rows
                )
                if audited or not reason:
                    return self._judged(upload, replace(decision, audited=audited), verdicts)
            decision = replace(decision, audited=True)

    def _judged(self, upload: _Upload, decision: Decision, verdicts: Rows) -> Manifest:
        if upload.node_id in self.standing.excluded:
            # It was caught while this was checked.
            self._set_aside(upload, {row["sample_id"]: EXCLUDED for row in upload.rows})
            raise RolloutsRefused(upload.job.name, upload.node_id, [EXCLUDED], lie=True)
        repeated = self.accepted.repeated(upload.job, upload.rows)
        for row in verdicts:
            if row["verdict"] == "rejected" and row["trace_id"] in repeated:
                first = repeated[row["trace_id"]]
                row["reasons"].append(
                    f"copied: the answer of sample {first.sample_id} of node {first.node_id[:64]}"
                )
        finding = Finding.of(verdicts)
        lied = self._auditor.proves_lies(upload.node_id, finding)
        if not lied:
            self._check_first([place.file for place in repeated.values()])
        self._commit_verdicts(upload, decision, verdicts)
        if finding.failed:
            self.accepted.withdraw(upload.node_id)
        return self._settle(upload, decision, verdicts, lied)

    def _check(self, name: str, model: str, rows: str, audited: bool) -> Rows:
        job = check_job(
            CheckPayload(
                root=self._store.root,
                rows=rows,
                model=model,
                broadcast=self._trusted.broadcast,
                config=self._config.check,
                calibration=self._calibration,
                audited=audited,
            )
        )
        verdicts: Rows = []
        words = ""
        for _ in range(CHECK_ATTEMPTS):
            try:
                verdicts = self._pool.submit(job).result().output["verdicts"]
            except PoolClosed:
                raise
            except PoolError as error:
                words = str(error)
                continue
            crashed = [row for row in verdicts if row["verdict"] == "crashed"]
            if not crashed or crashed[0]["reasons"] == [NO_VERSION]:
                return verdicts
            words = crashed[0]["figures"]
        if all(row["verdict"] == "crashed" for row in verdicts):
            # Not one row could be judged: that is the check, not the rows.
            raise CheckCrashed(name, words)
        return verdicts

    def _check_first(self, files: Sequence[str]) -> None:
        """Check files that were believed and hold the answers of an upload that proved honest."""
        for path in sorted(set(files)):
            if (found := self.accepted.unchecked(path)) is None:
                continue
            job, node_id = found
            verdicts = self._check(job.name, job.model, path, True)
            finding = Finding.of(verdicts)
            if self._auditor.proves_lies(node_id, finding):
                self._exclude(node_id, _reasons(verdicts), {"file": path})
            elif finding.failed:
                self.accepted.take_back(job, node_id)

    def _commit_verdicts(self, upload: _Upload, decision: Decision, verdicts: Rows) -> None:
        name = validator_name(self._config.check)
        rows = [row | {"shard_id": upload.held, "validator": name} for row in verdicts]
        manifest = commit_table(
            self._store,
            self._layout.verdicts(KIND, upload.held),
            table_from_rows(rows, verdicts_contract.SCHEMA),
            schema=verdicts_contract.SCHEMA,
            producer=KIND,
            info={"audit": asdict(decision) | Finding.of(verdicts).info()},
        )
        self._auditor.note(manifest)

    def _settle(self, upload: _Upload, decision: Decision, verdicts: Rows, lied: bool) -> Manifest:
        reasons = {
            row["trace_id"]: "; ".join(row["reasons"])
            for row in verdicts
            if row["verdict"] not in ACCEPTED
        }
        if lied:
            raise self._refuse(upload, reasons)
        good = [row for row in upload.rows if row["sample_id"] not in reasons]
        if not good:
            raise self._refuse(upload, {"": f"no_honest_rows: {_reasons(verdicts)[0]}"})
        trusted = self._trusted
        rewards = rewarded(
            good,
            trusted.answers,
            trusted.lengths,
            trusted.objective,
            upload.job.sampling.max_tokens,
        )
        lies = {
            row["sample_id"]: lie
            for row, ours in zip(good, rewards, strict=True)
            if (lie := forged(row, ours))
        }
        if lies:
            raise self._refuse(upload, lies)
        rows = [
            row | ours | {"input_logprobs": None, "error": None}
            for row, ours in zip(good, rewards, strict=True)
        ]
        broken = {row["group"] for row in upload.rows if row["sample_id"] in reasons}
        for row in rows:
            if row["group"] in broken:
                row["advantages"] = None
        return self._accept(upload, decision, rows, reasons)

    def _accept(
        self, upload: _Upload, decision: Decision, rows: Rows, aside: Mapping[str, str]
    ) -> Manifest:
        table = table_from_rows(rows, contract.SCHEMA)
        report = contract.validate(table)
        if report.blocking or report.bad_rows:
            # Everything in it was checked or made by us: it is our fault, not the node's.
            raise TableBlocked(f"rollouts {upload.job.name}: {report.blocking or report.bad_rows}")
        counted: dict[str, int] = {}
        for reason in aside.values():
            code = reason.partition(":")[0]
            counted[code] = counted.get(code, 0) + 1
        count = StageCount(KIND, len(upload.rows), len(rows), len(aside), counted)
        check(count)
        self._set_aside(upload, aside)
        job = upload.job
        return self.accepted.commit(
            job,
            table,
            rows,
            {
                "stage": KIND,
                "step": job.step,
                "job": job.number,
                "node_id": upload.node_id,
                "files": {file.path: file.sha256 for file in upload.result.files},
                "audited": decision.audited,
                "seconds": upload.result.seconds,
                "counts": count.info(),
            },
        )

    def _refuse(self, upload: _Upload, reasons: Mapping[str, str]) -> RolloutsRefused:
        """Set an upload aside as a whole; its rows with their own reasons."""
        whole = reasons.get("", "refused_with_its_file")
        everything = {row["sample_id"]: reasons.get(row["sample_id"], whole) for row in upload.rows}
        self._set_aside(upload, everything)
        evidence = {"sha256": upload.sha256, "samples": sorted(filter(None, reasons))[:20]}
        return self._refused(
            upload.job, upload.node_id, sorted(set(reasons.values()))[:20], evidence
        )

    def _refused(
        self, job: RolloutJob, node_id: str, reasons: Sequence[str], evidence: dict[str, Any]
    ) -> RolloutsRefused:
        lie = is_lie(reasons)
        if lie:
            self._exclude(node_id, reasons, evidence)
        return RolloutsRefused(job.name, node_id, reasons, lie=lie, evidence=evidence)

    def _exclude(self, node_id: str, reasons: Sequence[str], evidence: dict[str, Any]) -> None:
        self.standing.excluded.add(node_id)
        self._pool.distrust(node_id, "; ".join(reasons), evidence)
        self.accepted.withdraw(node_id)

    def _set_aside(self, upload: _Upload, reasons: Mapping[str, str]) -> None:
        quarantine_rows(
            self._store,
            self._layout,
            KIND,
            upload.held,
            [
                (row, reasons[row["sample_id"]], upload.node_id)
                for row in upload.rows
                if row["sample_id"] in reasons
            ],
        )


def _reasons(verdicts: Rows) -> list[str]:
    return sorted({reason for row in verdicts for reason in row["reasons"]})
