"""Make a figure for a paper: one quantity over one axis from runs of a store, as a drawing and as a table."""
