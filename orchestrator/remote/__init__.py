"""The client of the agent on each host, and the channels that reach it."""
