"""Who sent what to whom: patterns, periods, throughput and shared links."""
