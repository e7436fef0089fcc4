"""Benchmarks: every number that the documentation quotes comes from here, by `make bench`."""
