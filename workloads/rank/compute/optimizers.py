"""The optimizers of a training, with the same constants in every framework: Keras's defaults."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from .compute_settings import RealSettings

_EPSILON = 1e-7
_DECAY = 0.9  # of RMSProp's mean square


def of_torch(config: RealSettings, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """PyTorch's."""
    from torch import optim

    rate = config["learning_rate"]
    if config["optimizer"] == "adam":
        return optim.Adam(parameters, rate, eps=_EPSILON)
    if config["optimizer"] == "rmsprop":
        return optim.RMSprop(parameters, rate, alpha=_DECAY, eps=_EPSILON)
    return optim.SGD(parameters, rate, fused=True)


def of_keras(config: RealSettings) -> Any:
    """TensorFlow's, of Keras 2."""
    from tensorflow.keras import optimizers

    rate = config["learning_rate"]
    if config["optimizer"] == "adam":
        return optimizers.Adam(rate, epsilon=_EPSILON)
    if config["optimizer"] == "rmsprop":
        return optimizers.RMSprop(rate, rho=_DECAY, epsilon=_EPSILON)
    return optimizers.SGD(rate)
