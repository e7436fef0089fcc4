"""Processes of the node: those that the agent starts, and what /proc says of all."""
