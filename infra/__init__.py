"""What the stages stand on: storage, node pool, inference engines, model registry."""
