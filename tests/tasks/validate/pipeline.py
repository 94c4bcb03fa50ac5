"""A group of nodes that holds a model and uploads what it made, right or wrong."""

import hashlib
from typing import Any

import torch
from safetensors.torch import save

from data_contracts import generate as contract
from data_contracts.text import table_from_rows
from infra.inference.protocol import PROOF_ROWS
from infra.storage.parquet import parquet_bytes
from tasks.validate.check import TOPK
from toploc.build import prove
from toploc.groups import GroupTask, StageSigner, rows_digest, tokens_digest
from toploc.signing import SigningKey
from toploc.transcript import Transcript

GROUP = "00aa11"
KEYS = [SigningKey(bytes([stage + 1]) * 32) for stage in range(4)]


def name_of(number: int, size: int = 2) -> str:
    """The name of a group's file as the service knows it."""
    return f"u/run-{GROUP}-{size}-{number}.parquet"


def file_of(number: int, stage: int, size: int = 2) -> str:
    """The file of one stage."""
    return name_of(number, size).replace(".parquet", f"-{stage}.parquet")


class Group:
    """What the group keeps and uploads."""

    def __init__(self, store: Any, engine: Any, size: int = 2):
        self.store = store
        self._size = size
        self._stages = engine.stages(size)
        self._inputs: dict[tuple[int, str, int], torch.Tensor] = {}

    def upload(
        self,
        rows: list[dict],
        number: int,
        wrong_stage: int | None = None,
        missing: int = 0,
        honest_proofs: bool = False,
        attempt: int = 0,
    ) -> dict[str, Any]:
        """Write the files of all stages, and give the body of their trigger.

        A wrong stage adds noise to what it gives on, and proves it unless it has `honest_proofs`;
        stage 0 leaves `missing` traces out.
        """
        tables: list[list[dict]] = [[] for _ in range(self._size)]
        for row in rows:
            for stage, record in enumerate(
                self._records(row, number, wrong_stage, honest_proofs, attempt)
            ):
                mine = row | {
                    "node_id": KEYS[stage].node_id,
                    "group_id": GROUP,
                    "stage_proofs": [record.to_bytes()],
                    "proofs": record.proofs,
                }
                transcript = Transcript.of_row(mine)
                mine["transcript_hash"], mine["signature"] = transcript.sign(KEYS[stage])
                tables[stage].append(mine)
        tables[0] = tables[0][: len(rows) - missing]
        shas = []
        for stage, table in enumerate(tables):
            data = parquet_bytes(table_from_rows(table, contract.SCHEMA))
            self.store.write_bytes(file_of(number, stage, self._size), data, overwrite=True)
            shas.append(hashlib.sha256(data).hexdigest())
        return {
            "file_shas": shas,
            "group_id": GROUP,
            "file_number": number,
            "group_size": self._size,
            "attempt": attempt,
        }

    def hand_out(self, number: int, trace_id: str, stage: int = 1) -> None:
        """Upload the input that a stage kept of a trace."""
        stem = file_of(number, stage, self._size).removesuffix(".parquet")
        data = save({"rows": self._inputs[number, trace_id, stage]})
        self.store.write_bytes(f"{stem}.{trace_id}.safetensors", data)

    def _records(
        self, row: dict, number: int, wrong_stage: int | None, honest_proofs: bool, attempt: int
    ) -> list[Any]:
        size, keys = self._size, KEYS[: self._size]
        task = GroupTask(
            GROUP, tuple(key.node_id for key in keys), row["trace_id"], row["model_revision"],
            row["prompt_ids"], row["sampling"], row["seed"], attempt,
        )  # fmt: skip
        signers = [StageSigner(task, stage, key) for stage, key in enumerate(keys)]
        rows = torch.tensor([*row["prompt_ids"], *row["output_ids"][:-1]])
        proofs, contents = [], []
        for stage in range(size):
            self._inputs[number, row["trace_id"], stage] = rows
            rows = self._stages.run(stage, rows).clone()
            proven = rows.clone()
            if stage == wrong_stage:
                rows += torch.randn(rows.shape, generator=torch.Generator().manual_seed(1))
            shown = (proven if honest_proofs else rows)[len(row["prompt_ids"]) - 1 :]
            proofs.append(
                prove(shown.to(torch.bfloat16), topk=TOPK, decode_batching_size=PROOF_ROWS)
            )
            contents.append(rows_digest(rows))
        contents[-1] = tokens_digest(row["output_ids"])
        sent = [signers[stage].dispatch(contents[stage]) for stage in range(size)]
        receipts = [
            signers[(stage + 1) % size].countersign(sent[stage], contents[stage])
            for stage in range(size)
        ]
        return [signers[stage].record(receipts[stage], proofs[stage]) for stage in range(size)]
