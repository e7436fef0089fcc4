"""Models of ranks, with real or emulated compute."""
