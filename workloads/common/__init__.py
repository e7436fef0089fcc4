"""Modules that workloads share: placement of ranks, launches, resources, and traffic in theory."""
