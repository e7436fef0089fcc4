"""Simulate a plan: ranks as graphs of computing and transfers, links with queues, and the very flows of its schedule."""
