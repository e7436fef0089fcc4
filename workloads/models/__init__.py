"""The models that can be trained: layer tables, and GPTs by their shape."""
