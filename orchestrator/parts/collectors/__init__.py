"""Collectors: what watches nodes while a run goes on, one module each."""
