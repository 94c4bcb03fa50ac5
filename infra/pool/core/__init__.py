"""The pool's decisions: pure functions of state, event and time, without I/O or a clock."""
