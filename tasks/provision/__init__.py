"""Provision: get the nodes that generate and check, here as local processes."""
