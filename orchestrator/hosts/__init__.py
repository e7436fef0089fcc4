"""Looks at hosts, prepares them and cleans up on them."""
