"""Actions of a run on its nodes, one module each."""
