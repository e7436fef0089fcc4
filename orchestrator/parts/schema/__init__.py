"""The tables of a run: what a row of each is, and its columns with types, units and meanings."""
