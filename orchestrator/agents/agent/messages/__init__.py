"""Shapes of what is said on an agent's channel, for type checkers: no agent imports them on its host."""
