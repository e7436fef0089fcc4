"""Shared by workloads: places of ranks, how they are launched, what they take, and what theory says they send."""
