"""What ranks wrote of their iterations in a window."""
