"""Testbeds: real hosts from an inventory, and containers on this machine."""
