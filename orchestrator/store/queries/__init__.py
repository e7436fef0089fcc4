"""SQL over the tables of many runs."""
