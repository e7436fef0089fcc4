"""Launches in containers, and images."""
