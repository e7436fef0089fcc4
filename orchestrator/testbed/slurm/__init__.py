"""Hosts of a Slurm allocation, and a cluster of Slurm on this machine to try them on."""
