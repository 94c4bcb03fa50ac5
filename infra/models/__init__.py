"""The model registry: ids, files, revisions, defaults (`registry.py`)."""
