"""What runs inside the sandbox, as `python -m guest` in a bare interpreter."""
