"""Compute times of an accelerator: its peak, the share of it that is used, and the work of a model (Li, equation 9)."""

from __future__ import annotations

import re
from typing import Any

from orchestrator.core.errors import ConfigError
from workloads.common import trained_model
from workloads.models import catalog, formulation, gpt

ACCEPTED = "peak and used share of it, such as 71tflops@30%"

_TEXT = re.compile(r"([0-9]+(?:\.[0-9]+)?)tflops@([0-9]+(?:\.[0-9]+)?)%")
_PASSES = 3  # a backward pass has twice the work of a forward pass


def compute_s(text: str, workload: str, config: Any) -> float:
    """Seconds in which a rank computes in an iteration; `text` is F and mu as ACCEPTED says."""
    match = _TEXT.fullmatch(text)
    if match is None or not float(match[1]) or not 0 < float(match[2]) <= 100:
        raise ConfigError(f"accelerator={text}: not an accelerator; accepted: {ACCEPTED}")
    f, mu = float(match[1]) * 1e12, float(match[2]) / 100
    if workload == "ptd":
        return _of_split(config, f=f, mu=mu)
    layers = catalog.load(config.model).layers
    return _PASSES * sum(layer.flops for layer in layers) * trained_model.batch(config) / (mu * f)


def _of_split(config: Any, *, f: float, mu: float) -> float:
    """Equation 9, with N of equation 10; 6 FLOPs a parameter and token without recomputation."""
    shape = gpt.shape_of(config.model)
    split = formulation.Split(p=config.pipeline, t=config.tensor, d=config.data, m=config.microbatches, b=config.batch)
    parameters = formulation.parameters(
        layers=shape.layers, h=shape.hidden, s=shape.sequence, vocabulary=shape.vocabulary
    )
    per_token = formulation.FLOPS if config.recompute else formulation.FLOPS - 2
    return formulation.compute_s(split, parameters=parameters, s=shape.sequence, f=f, mu=mu, per_token=per_token)
