"""Read experiment, sweep, study and inventory files, plan their runs, and check whether hosts can carry them."""
