"""Ranks on torch.distributed."""
