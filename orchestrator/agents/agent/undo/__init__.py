"""Changes to the node and the journal by which they are taken back, if need be by a later agent."""
