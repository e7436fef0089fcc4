"""Tests that every part and gate has to pass, ours and those of other packages: docs/own-parts.md shows their use."""

from orchestrator.testing.case import HOSTS, TOPOLOGIES, Case
from orchestrator.testing.contract import Check, checks
from orchestrator.testing.gates import GateCase, MadeWindow, gate_checks

__all__ = ["HOSTS", "TOPOLOGIES", "Case", "Check", "GateCase", "MadeWindow", "checks", "gate_checks"]
