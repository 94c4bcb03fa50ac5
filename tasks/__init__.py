"""The stages: the work of each in modules free of Prefect, and thin task wrappers."""
