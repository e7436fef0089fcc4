"""The command line of `orch`, with one module for each group of commands."""
