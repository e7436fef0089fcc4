"""Ranks that train with Horovod."""
