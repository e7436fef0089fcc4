"""A machine's processors and memory, the packages of programs it lacks, and remedies."""
