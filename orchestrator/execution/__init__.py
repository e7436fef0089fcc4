"""Carries out one run and seals what it measured."""
