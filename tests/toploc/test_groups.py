from dataclasses import replace

import pytest
import torch

from toploc.errors import LinkRefused, MalformedRecord
from toploc.groups import (
    GroupFile,
    GroupTask,
    StageRecord,
    StageSigner,
    present,
    rows_digest,
    tokens_digest,
)
from toploc.signing import SigningKey

KEYS = [SigningKey(bytes([n]) * 32) for n in range(3)]
TASK = GroupTask("0a", tuple(k.node_id for k in KEYS), "t" * 32, "r" * 32, [1, 2], "{}", 5)
WENT = [bytes([n]) * 32 for n in range(3)]


def signers(task=TASK):
    return [StageSigner(task, stage, key) for stage, key in enumerate(KEYS)]


def records(task=TASK):
    made = signers(task)
    sent = [signer.dispatch(content) for signer, content in zip(made, WENT, strict=True)]
    receipts = [made[(s + 1) % 3].countersign(sent[s], WENT[s]) for s in range(3)]
    return {s: made[s].record(receipts[s], b"proofs") for s in range(3)}


def test_a_file_name_from_the_wild():
    file = GroupFile.parse("Qwen3/dataset/samplingn-3450756714426841564-2-9-1.parquet")
    assert file.group_id == "3450756714426841564"
    assert (file.size, file.number, file.index) == (2, 9, 1)
    assert file.group_name == "Qwen3/dataset/samplingn-3450756714426841564-2-9.parquet"
    assert file.stage_names[1] == "Qwen3/dataset/samplingn-3450756714426841564-2-9-1.parquet"
    assert len(file.stage_names) == 2


@pytest.mark.parametrize(
    "name",
    [
        "plain.parquet",
        "a-xyz-2-9-1.parquet",
        "a-0a-2-9.parquet",
        "a-0a-2-9-2.parquet",
        "a-0a-0-9-0.parquet",
        "a-0a-2-9--1.parquet",
        "a-0a-2-9-1.parquet\n",
        "a-0a-\u0662-9-1.parquet",
        "a-0a-2-9-9999999999999999999999.parquet",
        "",
    ],
)
def test_other_names_are_refused(name):
    with pytest.raises(MalformedRecord, match="file name"):
        GroupFile.parse(name)


def test_digests_are_of_bytes_shape_and_type():
    rows = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    same = [rows, rows.clone(), rows.t().contiguous().t()]
    assert len({rows_digest(one) for one in same}) == 1
    others = [rows.reshape(3, 2), rows.half(), rows.bfloat16(), -rows, rows[:1]]
    assert len({rows_digest(one) for one in [*others, rows]}) == 6
    assert tokens_digest([1, 2]) == rows_digest(torch.tensor([1, 2])) != tokens_digest([2, 1])
    with pytest.raises(MalformedRecord):
        rows_digest(torch.tensor(1.0))


def test_honest_stages_make_records_that_are_present():
    found, missing = present(records(), TASK)
    assert sorted(found) == [0, 1, 2] and missing == ()
    for record in found.values():
        assert StageRecord.from_bytes(record.to_bytes()) == record


@pytest.mark.parametrize("size", [0, 3, 291])
def test_what_is_too_short_for_a_record_is_refused(size):
    with pytest.raises(MalformedRecord, match="at least 292 bytes"):
        StageRecord.from_bytes(bytes(size))
    with pytest.raises(MalformedRecord, match="got str"):
        StageRecord.from_bytes("x")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda r: r | {1: replace(r[1], proofs=b"other")},
        lambda r: r | {1: replace(r[1], signature=bytes(64))},
        lambda r: r | {1: r[1].signed(KEYS[2])},
        lambda r: r | {1: r[2]},
        lambda r: r | {1: records(replace(TASK, attempt=1))[1]},
        lambda r: r | {1: records(replace(TASK, prompt_ids=[1, 3]))[1]},
        lambda r: {0: r[0], 2: r[2]},
    ],
    ids=[
        "changed after signing", "no signature", "signed by another", "of another stage",
        "of another attempt", "of another prompt", "none",
    ],
)  # fmt: skip
def test_what_anybody_may_have_put_there_counts_as_missing(spoil):
    found, missing = present(spoil(records()), TASK)
    assert missing == (1,) and sorted(found) == [0, 2]


def test_an_honest_stage_signs_each_thing_once_and_nothing_that_does_not_fit():
    first, second, _ = signers()
    sent = first.dispatch(WENT[0])
    with pytest.raises(LinkRefused, match="signed its output already"):
        first.dispatch(WENT[1])
    with pytest.raises(LinkRefused, match="did not sign what it sent"):
        second.countersign(sent, WENT[1])
    with pytest.raises(LinkRefused, match="did not sign what it sent"):
        second.countersign(KEYS[2].sign(b"x"), WENT[0])
    with pytest.raises(LinkRefused, match="not both received and sent"):
        second.record(b"", b"")
    receipt = second.countersign(sent, WENT[0])
    with pytest.raises(LinkRefused, match="already"):
        second.countersign(sent, WENT[0])
    first.countersign(signers()[2].dispatch(WENT[2]), WENT[2])
    with pytest.raises(LinkRefused, match="receipt is not for what"):
        first.record(bytes(64), b"")
    assert first.record(receipt, b"").output_digest == WENT[0]
    with pytest.raises(LinkRefused, match="stage 1 is"):
        StageSigner(TASK, 1, KEYS[0])
