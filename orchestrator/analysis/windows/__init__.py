"""Measure the windows of a run for its gates and tables: loads, training, processors, counters."""
