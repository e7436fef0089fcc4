"""Simulate a plan: ranks as graphs of computing and transfers, links with queues, the flows of its schedule."""
