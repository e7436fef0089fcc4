"""Conditions: reversible changes to nodes and links, one module each."""
