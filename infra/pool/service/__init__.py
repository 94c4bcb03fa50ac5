"""The node pool as an HTTP service: the shell around `infra.pool.core`."""
