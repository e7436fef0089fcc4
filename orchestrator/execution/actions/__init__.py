"""What a run does on its nodes, one module an action."""
