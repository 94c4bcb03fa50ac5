"""Sources: real files and packages; a bad row is data, a missing source an error that helps."""

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import s3fs

from tasks.collect.config import (
    DatasetSource,
    FileSource,
    HumanEvalSource,
    MakerSource,
    ReasoningGymSource,
)
from tasks.collect.errors import (
    BadOption,
    DeniedGenerator,
    SourceNotFound,
    SourceUnreachable,
    UnknownName,
)
from tasks.collect.rows import Bad, Raw, to_task
from tasks.collect.sources import read
from tasks.collect.sources.generators import DENIED

ROW = {
    "problem_id": "p",
    "task_type": "reverse_text",
    "prompt": "Reverse: abc",
    "verification_info": '{"ground_truth": "cba"}',
}


def _file(path: Path, limit: int = 0) -> list[Raw | Bad]:
    return list(read(FileSource(uri=str(path), limit=limit)))


def _reasons(rows):
    return [row.reason.partition(":")[0] if isinstance(row, Bad) else "ok" for row in rows]


def test_bad_lines_cost_only_themselves(tmp_path):
    good = json.dumps(ROW).encode()
    lines = [
        good,
        b"{broken",
        b"",
        b'{"a": 1, "a": 2}',
        b'"text"',
        b"\xff\xfe{}",
        b'{"n": NaN}',
        b'{"n": ' + b"1" * 5000 + b"}",
        b"[" * 100_000,
        b"\xef\xbb\xbf" + good,
        good,
    ]
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"\n".join(lines))
    rows = _file(path)
    assert _reasons(rows) == [
        "ok",
        "bad_json",
        "bad_json",
        "wrong_type",
        "bad_utf8",
        "bad_json",
        "bad_json",
        "bad_json",
        "ok",
        "ok",
    ]
    assert rows[1].row == {"line": "{broken\n"}
    assert rows[1].origin.endswith("rows.jsonl:2")
    assert rows[4].row["line"].startswith("\\xff\\xfe")
    assert all(row.row == ROW for row in rows if isinstance(row, Raw))


def test_gzip_with_limit_and_a_torn_tail(tmp_path):
    path = tmp_path / "rows.jsonl.gz"
    data = gzip.compress("\n".join(json.dumps({**ROW, "n": n}) for n in range(5000)).encode())
    path.write_bytes(data)
    assert len(_file(path)) == 5000
    assert [row.row["n"] for row in _file(path, limit=3)] == [0, 1, 2]
    path.write_bytes(data[: len(data) // 2])
    rows = _file(path)
    assert len(rows) > 1
    assert _reasons(rows)[-1] == "broken_file"


def test_parquet_rows_load_as_they_are(tmp_path):
    path = tmp_path / "rows.parquet"
    listed = [{"role": "user", "content": "Reverse: ab"}]
    rows = [{**ROW, "prompt": listed}, {**ROW, "prompt": None}]
    pq.write_table(pa.Table.from_pylist(rows), path)
    first, second = (to_task(raw) for raw in _file(path))
    assert first["prompt"] == listed
    assert second.reason == "missing_key: prompt"


def test_a_damaged_row_group_costs_the_group(tmp_path):
    path = tmp_path / "rows.parquet"
    table = pa.Table.from_pylist([{**ROW, "prompt": f"Reverse: {n:04d}"} for n in range(40)])
    pq.write_table(table, path, row_group_size=20, compression="zstd")
    column = pq.ParquetFile(path).metadata.row_group(0).column(2)
    data = bytearray(path.read_bytes())
    start = column.dictionary_page_offset or column.data_page_offset
    data[start : start + 60] = b"\x07" * 60
    path.write_bytes(data)
    rows = _file(path)
    assert _reasons(rows) == ["broken_file", *["ok"] * 20]


@pytest.mark.parametrize("name", ["gone.jsonl", "gone.parquet", "gone.jsonl.gz"])
def test_a_missing_file_is_named(tmp_path, name):
    with pytest.raises(SourceNotFound, match=name):
        _file(tmp_path / name)


def test_a_store_that_does_not_answer_is_worth_another_try(monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "none")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    # fsspec keeps file systems: one of another test still knows that test's server.
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(SourceUnreachable, match=r"s3://bucket/rows\.jsonl") as caught:
        list(read(FileSource(uri="s3://bucket/rows.jsonl")))
    assert caught.value.retryable
    s3fs.S3FileSystem.clear_instance_cache()


def test_other_files_are_refused(tmp_path):
    with pytest.raises(SourceNotFound, match=r"\.jsonl, \.jsonl\.gz, \.parquet"):
        _file(tmp_path / "rows.csv")
    (tmp_path / "no.parquet").write_text("no parquet")
    with pytest.raises(SourceNotFound, match="not a readable parquet"):
        _file(tmp_path / "no.parquet")


def test_a_dataset_directory_loads_with_its_splits(tmp_path):
    pq.write_table(pa.Table.from_pylist([ROW, ROW]), tmp_path / "train-00000.parquet")
    source = DatasetSource(path=str(tmp_path), limit=1)
    assert [row.row for row in read(source)] == [ROW]
    with pytest.raises(UnknownName, match="Allowed: train"):
        list(read(DatasetSource(path=str(tmp_path), split="trian")))


def test_a_dataset_that_is_not_there_is_named(tmp_path):
    with pytest.raises(SourceNotFound, match="no_such_dir"):
        list(read(DatasetSource(path=str(tmp_path / "no_such_dir"))))


def test_generators_give_entries_that_survive_storage():
    rows = list(read(ReasoningGymSource(generator="chain_sum", size=5, seed=1)))
    for raw in rows:
        task = to_task(raw)
        info = json.loads(task["verification_info"])
        entry = json.loads(info["reasoning_gym_entry"])
        assert task["prompt"][0]["content"].startswith(entry["question"])
        assert task["gold"] == f"<answer>{entry['answer']}</answer>"


def test_a_generator_without_answers_has_no_gold():
    (raw,) = read(ReasoningGymSource(generator="rubiks_cube", size=1, seed=1))
    assert to_task(raw)["gold"] is None


@pytest.mark.parametrize("name", DENIED)
def test_untrusted_generators_are_refused(name):
    with pytest.raises(DeniedGenerator, match="is not allowed"):
        list(read(ReasoningGymSource(generator=name)))


def test_unknown_generators_and_options_name_the_nearest():
    with pytest.raises(UnknownName, match="Did you mean 'chain_sum'"):
        list(read(ReasoningGymSource(generator="chain_sums")))
    with pytest.raises(UnknownName, match="Did you mean 'max_terms'"):
        list(read(ReasoningGymSource(generator="chain_sum", options={"max_term": 3})))
    with pytest.raises(BadOption, match="max_terms"):
        list(read(ReasoningGymSource(generator="chain_sum", options={"max_terms": 1})))


def test_unknown_makers_and_knobs_name_the_nearest():
    with pytest.raises(UnknownName, match="Did you mean 'reverse_text'"):
        list(read(MakerSource(task_type="reverse_texts")))
    with pytest.raises(UnknownName, match="Did you mean 'max_words'"):
        list(read(MakerSource(task_type="reverse_text", knobs={"max_word": 3})))


def test_human_eval_problems_have_literal_tests():
    rows = list(read(HumanEvalSource()))
    assert len(rows) > 120
    tests = json.loads(rows[0].row["verification_info"]["test_cases"])
    assert tests["fn_name"] == "has_close_elements"
    assert tests["inputs"][0] == "[1.0, 2.0, 3.9, 4.0, 5.0, 2.2]\n0.3"
    assert tests["outputs"][0] == "true"
    assert len(list(read(HumanEvalSource(limit=4)))) == 4
