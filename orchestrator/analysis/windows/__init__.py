"""What a window amounts to, and the gates that judge it."""
