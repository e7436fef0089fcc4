"""Ways to carry bytes to an agent on a node."""
