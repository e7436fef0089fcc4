"""Verify a testbed: measure there each claim of ours that hardware could break, and say which hold."""
