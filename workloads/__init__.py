"""Training workloads, one module for each framework."""
