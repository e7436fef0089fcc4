"""Testbeds on this machine: hosts as network namespaces or containers, behind a switch of their own."""
