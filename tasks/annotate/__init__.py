"""The annotate stage: how hard each task is for each annotator model."""

from tasks.annotate.config import PASS_MARK, AnnotateConfig, SftConfig
from tasks.annotate.difficulty import passed
from tasks.annotate.select import select_for_teacher
from tasks.annotate.stage import annotate

__all__ = [
    "PASS_MARK",
    "AnnotateConfig",
    "SftConfig",
    "annotate",
    "passed",
    "select_for_teacher",
]
