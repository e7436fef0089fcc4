"""The node's files and folders, as far as a run has to do with them."""
