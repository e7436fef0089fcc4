"""Tests of every kind, and the benchmarks."""
