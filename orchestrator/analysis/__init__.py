"""Analyse a run's outputs: pure functions from captures, logs and tables to figures, statistics and comparisons."""
