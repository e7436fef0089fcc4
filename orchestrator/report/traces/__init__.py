"""Export the activities of a run's ranks for other tools: Chakra execution traces and Kineto's JSON."""
