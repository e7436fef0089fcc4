"""A workload and a collector for orch."""
