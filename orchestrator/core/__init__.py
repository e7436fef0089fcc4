"""Foundations of every other package: errors, units, deadlines, locks, undo stacks, facts of this machine."""
