"""Runs against runs: selections, verdicts and curves."""
