"""Statistics of series that are autocorrelated."""
