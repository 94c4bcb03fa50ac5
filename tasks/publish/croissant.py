"""croissant.json: the dataset described for machines (MLCommons Croissant 1.0).

Invariant: like the card it holds content only; each parquet file is listed with its SHA-256.
"""

import json
from typing import Any

from tasks.publish.config import PublishConfig
from tasks.publish.features import croissant_fields
from tasks.publish.files import File
from tasks.publish.splits import CONFIGS, Splits

CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}


def render_croissant(config: PublishConfig, splits: Splits, files: list[File]) -> bytes:
    """croissant.json of the version."""
    parquet = [file for file in files if file.config is not None]
    document = {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": config.name,
        "description": f"{config.pretty_name}: model answers with checked activation proofs, "
        f"program-"
        "verified rewards and difficulty.",
        "license": config.license,
        "rai:dataCollection": "Sampled from language models; each trace checked against an "
        "activation "
        "proof and scored by a program.",
        "rai:dataBiases": "Tasks are those that a program can check; answers are those of the "
        "models "
        "named in README.md.",
        "distribution": [
            *[_file_object(file) for file in parquet],
            *[_file_set(name) for name in CONFIGS],
        ],
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": name,
                "name": name,
                "field": croissant_fields(splits.tables[name].schema, name, f"{name}-files"),
            }
            for name in CONFIGS
        ],
    }
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


def _file_object(file: File) -> dict[str, Any]:
    return {
        "@type": "cr:FileObject",
        "@id": file.path,
        "name": file.path,
        "contentUrl": file.path,
        "contentSize": f"{len(file.data)} B",
        "encodingFormat": "application/x-parquet",
        "sha256": file.sha256,
    }


def _file_set(name: str) -> dict[str, Any]:
    return {
        "@type": "cr:FileSet",
        "@id": f"{name}-files",
        "name": f"{name}-files",
        "encodingFormat": "application/x-parquet",
        "includes": f"{name}/train-*.parquet",
    }
