"""Analyse traffic between hosts: patterns, periods, throughput and shared links."""
