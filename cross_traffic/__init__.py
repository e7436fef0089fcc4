"""Sources of cross traffic, one module for each."""
