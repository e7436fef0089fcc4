"""Training workloads, one module a framework."""
