"""Read the files that users write, plan what they ask for, and check whether a machine can carry it."""
