"""The page about runs and its figures."""
