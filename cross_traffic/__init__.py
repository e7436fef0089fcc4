"""Sources of cross traffic, one module each."""
