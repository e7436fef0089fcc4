"""Ranks of an Open MPI job, and the programs between them and mpirun."""
