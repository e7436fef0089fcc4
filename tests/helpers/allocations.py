"""Allocations of Slurm for tests without one: what hosts say is made up, not asked."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.testbed.data_plane import HostFacts
from orchestrator.testbed.inventory import Data
from orchestrator.testbed.slurm import survey
from orchestrator.testbed.slurm.spec import Allocation, SlurmSpec

SPEC = SlurmSpec.model_validate({"network": "10.0.0.0/16"})
NODES = (13, 9, 14, 15)


def found(number: int, **more: Any) -> HostFacts:
    """What one host says of itself, some of it otherwise."""
    data = Data(address=f"10.0.0.{number}/16", device="ens1f0")
    return HostFacts(**{"data": data, "mtu": 9000, "speed": 100e9, "gpus": 8, "rights": (), **more})


def made(**more: Any) -> Allocation:
    """The allocation of four nodes that all say so."""
    return survey.summed_up(SPEC, "42", {f"gpu{number}": found(number, **more) for number in NODES})


def entered(patch: pytest.MonkeyPatch, **more: Any) -> None:
    """Be in that allocation."""
    patch.setenv("SLURM_JOB_ID", "42")
    patch.setattr(survey, "learn", lambda _: made(**more))
