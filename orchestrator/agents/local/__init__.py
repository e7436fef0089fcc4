"""PID 1 of a local testbed, and what it is asked and answers."""
