"""Ranks that train with DeepSpeed."""
