"""The publish stage: accepted traces become a version of the dataset with four configs."""

from tasks.publish.config import PublishConfig
from tasks.publish.splits import CONFIGS
from tasks.publish.stage import Published, publish, receipt_path
from tasks.publish.versions import latest

__all__ = ["CONFIGS", "PublishConfig", "Published", "latest", "publish", "receipt_path"]
