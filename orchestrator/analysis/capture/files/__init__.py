"""Capture files: their bytes, their records, and in which order those of a rotation are."""
