"""Who follows a run while it goes on: events, progress lines, and the metrics that Prometheus reads."""
