"""Makes liars of the nodes that start with this directory in PYTHONPATH.

A liar earns a record with some honest shards and answers other prompts after that. Once one of its
lies was accepted without an audit, it leaves a mark and gives no proofs any more, which is plain to
see. Nodes that start after the mark are honest, so that the run comes to an end.
"""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

HONEST_SHARDS = 3


class LyingEngine:
    """An engine that answers the prompt read backwards, and may keep the proofs to itself."""

    def __init__(self, engine: Any, proves: bool):
        self._engine, self._proves = engine, proves

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def generate(self, batch: Any, params: Any, sink: Any) -> Any:
        backwards = [replace(asked, prompt_ids=asked.prompt_ids[::-1]) for asked in batch]
        return self._engine.generate(backwards, params, sink if self._proves else _nothing)


def _nothing(*row: Any) -> None:
    pass


class Liar:
    """Stands for `generate_shard`."""

    def __init__(self, honest: Any, mark: Path, verdicts: Path):
        self._honest, self._mark, self._verdicts = honest, mark, verdicts
        self._shards = 0
        self._lies: set[str] = set()

    def __call__(self, payload: Any, engine_of: Any, *rest: Any, **more: Any) -> Any:
        self._shards += 1
        if self._shards <= HONEST_SHARDS:
            return self._honest(payload, engine_of, *rest, **more)
        if self._believed():
            self._mark.touch()
        engine = LyingEngine(engine_of(payload["model"]), proves=not self._mark.exists())
        self._lies |= {asked["trace_id"] for batch in payload["batches"] for asked in batch}
        return self._honest(payload, lambda model: engine, *rest, **more)

    def _believed(self) -> bool:
        """Whether a lie was accepted without a look; a real node has no way to know."""
        import pyarrow.parquet as pq

        rows = (
            row
            for path in self._verdicts.rglob("*.parquet")
            for row in pq.read_table(path, columns=["trace_id", "verdict"]).to_pylist()
        )
        return any(
            row["trace_id"] in self._lies and row["verdict"] == "accepted_unaudited" for row in rows
        )


if "tasks.provision.worker" in sys.orig_argv:
    mark = Path(os.environ["LIAR_MARK"])
    if not mark.exists():
        from tasks.generate import work

        liar: Any = Liar(work.generate_shard, mark, Path(os.environ["LIAR_VERDICTS"]))
        work.generate_shard = liar
