"""One module per kind of task; each exposes `KIND`, listed in verifiers/registry.py."""
