"""The node agent: joins a pool, proves itself, runs what it is given, and cleans up behind it."""
