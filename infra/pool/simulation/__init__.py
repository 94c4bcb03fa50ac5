"""A fleet of machines that come, go and lie, run by the pool's own core or by the original's rules.

`world` plays the machines in steps of five seconds; a policy (`ours`, `original`) sees only what
the service would see: registrations, heartbeats, results. `account` says where GPU-hours went.
"""
