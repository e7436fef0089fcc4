"""Estimate a rank's memory and processor time from measurements, to tell beforehand that a machine is too small.

Measured on two processors of 2026 with torch 2.13 on gloo, by /proc/PID/smaps_rollup and /proc/PID/stat: ResNet-50 and
VGG-16 at scales of 100, 10 and 2, two to sixteen ranks.
"""

from __future__ import annotations

from typing import Literal

from orchestrator.parts.launch import Footprint

Framework = Literal["torch", "tensorflow"]

# Memory of a rank's own, in bytes, once its framework is imported and it has met its peers: libraries are shared.
BASE_BYTES: dict[Framework, float] = {"torch": 225e6, "tensorflow": 300e6}
COPIES = 3.2  # of its parameters that a rank keeps: weights, made gradients, reduced gradients, buckets

# Processor time in seconds.
START_S: dict[Framework, float] = {"torch": 2.0, "tensorflow": 3.0}  # to import the framework
START_A_PEER_S = 0.03  # to connect to each of the others
ITERATION_S = 0.010  # of an emulated iteration, whatever it moves
ITERATION_A_PEER_S = 0.0008
ITERATION_A_BYTE_S = 1.0e-9  # for each byte of gradients


def emulated(model_bytes: float, *, compute_s: float, ranks: int, framework: Framework = "torch") -> Footprint:
    """Return the footprint of a rank that holds `model_bytes` of parameters and sleeps `compute_s` s to compute."""
    working_s = ITERATION_S + ITERATION_A_PEER_S * (ranks - 1) + ITERATION_A_BYTE_S * model_bytes
    busy = working_s / max(compute_s, working_s)
    return _rank(model_bytes, busy=busy, ranks=ranks, framework=framework)


def computing(model_bytes: float, *, threads: int, ranks: int, framework: Framework = "torch") -> Footprint:
    """Return the footprint of a rank that computes on processors, without its activations, whose size is unknown."""
    return _rank(model_bytes, busy=threads, ranks=ranks, framework=framework)


def unknown(ranks: int) -> Footprint:
    """Return the footprint of a rank of torch with its model on a GPU, or with messages as fast as possible."""
    return _rank(0.0, busy=0.0, ranks=ranks, framework="torch")


def _rank(model_bytes: float, *, busy: float, ranks: int, framework: Framework) -> Footprint:
    return Footprint(
        memory=BASE_BYTES[framework] + COPIES * model_bytes,
        start_s=START_S[framework] + START_A_PEER_S * (ranks - 1),
        busy=busy,
    )
