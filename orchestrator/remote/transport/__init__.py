"""Transports that carry bytes to an agent on a node: SSH, a local process, and agents that call back."""
