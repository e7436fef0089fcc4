"""Name what made iterations slow, where, and how surely: from the tables and the manifest of a run alone."""
