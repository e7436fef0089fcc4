"""What every room stands on: errors, units, deadlines, locks, undoing, and what this machine is."""
