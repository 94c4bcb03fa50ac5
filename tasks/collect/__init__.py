"""Collect: sources of tasks in, one committed table of tested, distinct tasks out."""
