"""How the columns are described to readers: Hugging Face `dataset_info` and Croissant.

Invariant: the description comes from the Arrow schema of the file, so that the two cannot disagree.
"""

from typing import Any

import pyarrow as pa

HF_DTYPES = {
    pa.string(): "string",
    pa.large_string(): "large_string",
    pa.int32(): "int32",
    pa.int64(): "int64",
    pa.float64(): "float64",
    pa.bool_(): "bool",
}
CROISSANT_TYPES = {
    pa.string(): "sc:Text",
    pa.large_string(): "sc:Text",
    pa.int32(): "sc:Integer",
    pa.int64(): "sc:Integer",
    pa.float64(): "sc:Float",
    pa.bool_(): "sc:Boolean",
}


def hf_feature(name: str, kind: pa.DataType) -> dict[str, Any]:
    """One entry of `dataset_info.features` in the card's YAML."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        if pa.types.is_struct(kind.value_type):
            return {"name": name, "list": _hf_fields(kind.value_type)}
        return {"name": name, "list": HF_DTYPES[kind.value_type]}
    if pa.types.is_struct(kind):
        return {"name": name, "struct": _hf_fields(kind)}
    return {"name": name, "dtype": HF_DTYPES[kind]}


def hf_features(schema: pa.Schema) -> list[dict[str, Any]]:
    """`dataset_info.features` of a table."""
    return [hf_feature(column.name, column.type) for column in schema]


def _hf_fields(struct: pa.StructType) -> list[dict[str, Any]]:
    return [hf_feature(column.name, column.type) for column in struct]


def croissant_fields(schema: pa.Schema, record_set: str, file_set: str) -> list[dict[str, Any]]:
    """The fields of a Croissant record set, each read from the column of the same name."""
    fields = []
    for column in schema:
        node: dict[str, Any] = {
            "@type": "cr:Field",
            "@id": f"{record_set}/{column.name}",
            "name": column.name,
            "source": {"fileSet": {"@id": file_set}, "extract": {"column": column.name}},
        }
        if pa.types.is_list(column.type):
            node["repeated"] = True
            node["subField"] = [
                {
                    "@type": "cr:Field",
                    "@id": f"{record_set}/{column.name}/{inner.name}",
                    "name": inner.name,
                    "dataType": CROISSANT_TYPES[inner.type],
                    "source": {
                        "fileSet": {"@id": file_set},
                        "extract": {"column": column.name},
                        "transform": {"jsonPath": inner.name},
                    },
                }
                for inner in column.type.value_type
            ]
        else:
            node["dataType"] = CROISSANT_TYPES[column.type]
        fields.append(node)
    return fields
