"""What was measured in a window: traffic, counters, hosts and processors, from tables and logs."""
