"""Checks hosts (`orch doctor`), prepares their environments, and cleans up on them."""
