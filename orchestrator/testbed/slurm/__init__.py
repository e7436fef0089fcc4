"""Hosts of a Slurm allocation as a testbed, and a local Slurm cluster to try them on."""
