"""Orch: a live testbed measurement orchestrator."""
