"""Verify: the reward of each accepted trace, over Dask."""
