"""A group of two nodes that holds nano-s and uploads what it made, right or wrong."""

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
KEYS = [SigningKey(bytes([stage + 1]) * 32) for stage in range(2)]


def name_of(number: int) -> str:
    """The name of a group's file as the service knows it."""
    return f"u/run-{GROUP}-2-{number}.parquet"


def file_of(number: int, stage: int) -> str:
    """The file of one stage."""
    return name_of(number).replace(".parquet", f"-{stage}.parquet")


class GroupOfTwo:
    """What the group keeps and uploads."""

    def __init__(self, store: Any, engine: Any):
        self.store = store
        self._stages = engine.stages(2)
        self._inputs: dict[tuple[int, str], torch.Tensor] = {}

    def upload(
        self, rows: list[dict], number: int, wrong_stage: int | None = None, missing: int = 0
    ) -> dict[str, Any]:
        """Write the files of both stages, and give the body of their trigger.

        A wrong stage adds noise to what it gives on; stage 0 leaves `missing` traces out.
        """
        tables: list[list[dict]] = [[], []]
        for row in rows:
            for stage, record in enumerate(self._records(row, number, wrong_stage)):
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
            self.store.write_bytes(file_of(number, stage), data, overwrite=True)
            shas.append(hashlib.sha256(data).hexdigest())
        return {"file_shas": shas, "group_id": GROUP, "file_number": number, "group_size": 2}

    def hand_out(self, number: int, trace_id: str) -> None:
        """Upload the input that stage 1 kept of a trace."""
        file = file_of(number, 1).replace(".parquet", f".{trace_id}.safetensors")
        self.store.write_bytes(file, save({"rows": self._inputs[number, trace_id]}))

    def _records(self, row: dict, number: int, wrong_stage: int | None) -> list[Any]:
        task = GroupTask(
            GROUP, tuple(key.node_id for key in KEYS), row["trace_id"], row["model_revision"],
            row["prompt_ids"], row["sampling"], row["seed"],
        )  # fmt: skip
        signers = [StageSigner(task, stage, key) for stage, key in enumerate(KEYS)]
        rows = torch.tensor([*row["prompt_ids"], *row["output_ids"][:-1]])
        proofs, contents = [], []
        for stage in range(2):
            rows = self._stages.run(stage, rows).clone()
            if stage == wrong_stage:
                rows += torch.randn(rows.shape, generator=torch.Generator().manual_seed(1))
            mine = rows[len(row["prompt_ids"]) - 1 :].to(torch.bfloat16)
            proofs.append(prove(mine, topk=TOPK, decode_batching_size=PROOF_ROWS))
            contents.append(rows_digest(rows))
            if stage == 0:
                self._inputs[number, row["trace_id"]] = rows
        contents[1] = tokens_digest(row["output_ids"])
        sent = [signers[stage].dispatch(contents[stage]) for stage in range(2)]
        receipts = [
            signers[1 - stage].countersign(sent[stage], contents[stage]) for stage in (0, 1)
        ]
        return [signers[stage].record(receipts[stage], proofs[stage]) for stage in range(2)]
