"""PID 1 of a local testbed, and its messages."""
