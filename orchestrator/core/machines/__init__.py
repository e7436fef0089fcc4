"""What a machine has and lacks, and what brings it."""
