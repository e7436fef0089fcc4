"""The files that users write, read into plans, and whether a machine can carry what they ask for."""
