"""Errors, units, deadlines, locks, undoing, and what this machine is: every other package stands on these."""
