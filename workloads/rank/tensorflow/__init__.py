"""Ranks that train with TensorFlow alone."""
