"""Prefect flows: one per stage, and `run`, which chains them shard by shard."""

import os

# Before Prefect is imported anywhere: its temporary server needs more than the default 20 s on a
# busy machine, and nothing may be reported to the outside.
os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "300")
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
