"""The front page of a results store: runs, sweeps, studies and histories in one file that opens from disk."""
