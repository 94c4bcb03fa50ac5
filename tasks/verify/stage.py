"""The verify stage of one run: committed verdicts in, committed rewards out."""

from distributed import Client

from data_contracts.ids import model_slug
from infra.storage import Manifest, RunLayout, Store, read_manifest, read_table
from tasks.generate.plan import Shard
from tasks.verify.config import VerifyConfig
from tasks.verify.errors import VerdictsMissing
from tasks.verify.score import verify_shard
from verifiers import refuse_broken

PRODUCER = "verify"


class Scorer:
    """Scores shards over a Dask client."""

    def __init__(
        self,
        store: Store,
        layout: RunLayout,
        config: VerifyConfig,
        client: Client,
        *,
        allow_unaudited: bool,
    ):
        self.store = store
        self.layout = layout
        self._config = config
        self._client = client
        self._allow_unaudited = allow_unaudited
        columns = ["task_id", "task_type", "verification_info"]
        table = read_table(store, layout.tasks, columns=columns)
        self._tasks = {row["task_id"]: row for row in table.to_pylist()}
        # A resumed run may go on in an environment other than the one that tested the golds.
        refuse_broken({row["task_type"] for row in self._tasks.values()})

    def run(self, shard: Shard) -> Manifest:
        """Rewards of a shard, scored unless they are committed."""
        slug = model_slug(shard.model)
        done = read_manifest(self.store, self.layout.rewards(slug, shard.shard_id))
        if done is not None:
            return done
        if read_manifest(self.store, self.layout.verdicts(slug, shard.shard_id)) is None:
            raise VerdictsMissing(self.layout.verdicts(slug, shard.shard_id))
        return verify_shard(
            self.store,
            self.layout,
            shard,
            self._tasks,
            self._client,
            self._config,
            allow_unaudited=self._allow_unaudited,
            producer=PRODUCER,
        )
