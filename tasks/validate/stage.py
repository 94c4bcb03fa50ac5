"""The validate stage of one run: committed traces in, committed verdicts out."""

from data_contracts.ids import model_slug
from infra.pool import NodePool
from infra.storage import Manifest, RunLayout, Store, read_manifest
from tasks.generate.plan import Shard
from tasks.validate.commit import commit_verdicts, validate_job
from tasks.validate.config import ValidateConfig
from tasks.validate.errors import TracesMissing, ValidatorCrashed

PRODUCER = "validate"
CRASH_ATTEMPTS = 3


class Validator:
    """Judges shards through a pool of trusted nodes."""

    def __init__(self, store: Store, layout: RunLayout, config: ValidateConfig, pool: NodePool):
        self.store = store
        self.layout = layout
        self._config = config
        self._pool = pool

    def run(self, shard: Shard) -> Manifest:
        """Verdicts of a shard, judged unless they are committed."""
        slug = model_slug(shard.model)
        done = read_manifest(self.store, self.layout.verdicts(slug, shard.shard_id))
        if done is not None:
            return done
        traces = read_manifest(self.store, self.layout.traces(slug, shard.shard_id))
        if traces is None:
            raise TracesMissing(self.layout.traces(slug, shard.shard_id))
        job = validate_job(self.store, self.layout, shard, self._config)
        for _ in range(CRASH_ATTEMPTS):
            result = self._pool.submit(job).result()
            crashed = [row for row in result.output["verdicts"] if row["verdict"] == "crashed"]
            if not crashed:
                break
        else:
            if len(crashed) == len(result.output["verdicts"]):
                # Not one trace could be judged: that is the validator, not the traces.
                raise ValidatorCrashed(shard.shard_id, crashed[0]["figures"])
        return commit_verdicts(
            self.store, self.layout, shard, traces, result, self._config, producer=PRODUCER
        )
