"""Uploads are taken in only as their node made them, signed and unsigned parts alike."""

import hashlib

import pytest

from data_contracts import generate as contract
from data_contracts.text import table_from_rows
from infra.inference.prompts import ChatTokenizer
from infra.models import registry
from infra.storage import read_table
from infra.storage.parquet import parquet_bytes
from tasks.validate.errors import BadUpload
from tasks.validate.service_files import UploadReader

MODEL = "tracemill/nano-s"


def test_a_text_that_is_not_that_of_the_signed_tokens_is_refused(planned, generator, shards):
    rows = read_table(planned, generator.run(shards[0]).path).to_pylist()
    tokenizer = ChatTokenizer(registry.materialise(MODEL), MODEL)
    reader = UploadReader(planned, tokenizer, registry.revision(MODEL))

    def read(rows):
        data = parquet_bytes(table_from_rows(rows, contract.SCHEMA))
        planned.write_bytes("u/x.parquet", data, overwrite=True)
        return reader.read("u/x.parquet", hashlib.sha256(data).hexdigest(), None)

    try:
        assert [row["completion"] for row in read(rows)] == [row["completion"] for row in rows]
        with pytest.raises(BadUpload, match="other_completion"):
            read([row | {"completion": "5"} for row in rows])
    finally:
        reader.close()
