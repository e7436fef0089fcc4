"""Predictions as figures."""
