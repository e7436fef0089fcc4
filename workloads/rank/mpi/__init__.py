"""Ranks of an Open MPI job, and what stands between them and mpirun."""
