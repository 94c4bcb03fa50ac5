"""Rollouts from nodes that nobody has to trust: planned, made, checked, committed."""
