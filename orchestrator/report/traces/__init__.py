"""What the ranks of a run did, in the formats of others' tools: Chakra execution traces and Kineto's JSON."""
