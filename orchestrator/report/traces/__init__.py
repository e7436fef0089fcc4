"""Exports what the ranks of a run did for others' tools: Chakra execution traces and Kineto's JSON."""
