"""Validate: recompute what a trace claims, by one prefill, and accept or reject it."""
