"""Settings of the model, optimizers, and the clock of emulated layers, for trainings in any framework."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from ..lifecycle import LayerPlan

if TYPE_CHECKING:
    import torch

LEARNING_RATE = 0.01  # of plain gradient descent, where layers are emulated
_PR_SET_TIMERSLACK = 29
_SHORTEST_SLEEP_S = 5e-6
_EPSILON = 1e-7
_DECAY = 0.9  # of RMSProp's mean square


class EmulatedSettings(TypedDict):
    """A model whose layers sleep."""

    layers: list[LayerPlan]
    batch: int  # samples of an iteration
    seed: int


class RealSettings(TypedDict):
    """A model that classifies images."""

    model: str
    classes: int | None  # None: those of the data set, of noise 1000
    batch: int  # images of a rank in an iteration
    image: int  # edge in pixels
    data: str | None  # "gratings", or the folder of a data set; None is noise
    samples: int | None  # images that are trained on; None: all that there are
    held_out: int | None  # images that an epoch is judged by; likewise
    loaders: int  # processes that read images
    seed: int
    optimizer: Literal["sgd", "adam", "rmsprop"]
    learning_rate: float


class ModelSettings(EmulatedSettings, RealSettings):
    """A model of either kind."""

    compute: Literal["emulated", "real"]


class ComputeClock:
    """The clock of one pass: it sleeps to instants counted from the start of the pass, so that no delay adds up."""

    def __init__(self) -> None:
        self._start_s = 0.0
        self.last_gradient_ns = 0

    def start(self) -> None:
        self._start_s = time.monotonic()

    def hold(self, seconds: float) -> None:
        """Delay the rest of the pass by so long, in seconds, as it stood still."""
        self._start_s += seconds

    def sleep_until(self, since_start_s: float) -> None:
        """Sleep, without the interpreter's lock, until so many seconds of the pass have gone by."""
        left_s = self._start_s + since_start_s - time.monotonic()
        if left_s > _SHORTEST_SLEEP_S:
            time.sleep(left_s)


def sharpen_timer() -> None:
    """Make this thread's sleeps end on time: Linux adds up to 50 us by default; afterwards 3 us were measured."""
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)


def torch_optimizer(config: RealSettings, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """Return the optimizer of PyTorch, with the constants that Keras has by default, as in every framework."""
    from torch import optim

    rate = config["learning_rate"]
    if config["optimizer"] == "adam":
        return optim.Adam(parameters, rate, eps=_EPSILON)
    if config["optimizer"] == "rmsprop":
        return optim.RMSprop(parameters, rate, alpha=_DECAY, eps=_EPSILON)
    return optim.SGD(parameters, rate, fused=True)


def keras_optimizer(config: RealSettings) -> Any:
    """Return the optimizer of TensorFlow, of Keras 2."""
    from tensorflow.keras import optimizers

    rate = config["learning_rate"]
    if config["optimizer"] == "adam":
        return optimizers.Adam(rate, epsilon=_EPSILON)
    if config["optimizer"] == "rmsprop":
        return optimizers.RMSprop(rate, rho=_DECAY, epsilon=_EPSILON)
    return optimizers.SGD(rate)
