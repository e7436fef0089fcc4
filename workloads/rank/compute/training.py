"""Settings of the model, optimizers, and the clock of emulated layers, for trainings in any framework."""

from __future__ import annotations

import ctypes
import random
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from ..lifecycle import Jittered, LayerPlan

if TYPE_CHECKING:
    import torch

LEARNING_RATE = 0.01  # of plain gradient descent, where layers are emulated
_PR_SET_TIMERSLACK = 29
_SHORTEST_SLEEP_S = 5e-6
_EPSILON = 1e-7
_DECAY = 0.9  # of RMSProp's mean square


class EmulatedSettings(Jittered):
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
    """The clock of one pass: it sleeps to instants counted from the start of the pass, so that no delay adds up.

    What a rank does between two sleeps, such as DDP's copying into buckets, so takes none of the pass's time, as beside
    an accelerator that was given its work in advance. How long that was, the clock tells.
    """

    def __init__(self, jitter: Jitter | None = None) -> None:
        self._jitter = jitter
        self._factor = 1.0 if jitter is None else jitter.next()
        self._start_s = 0.0
        self._awake_since_s = 0.0
        self._busy_s = self._late_s = 0.0  # of this pass: between sleeps, and after its last instant
        self._absorbed_s = 0.0  # of passes that have ended
        self.last_gradient_ns = 0

    def start(self) -> None:
        self._end_pass()
        self._start_s = self._awake_since_s = time.monotonic()

    def hold(self, seconds: float) -> None:
        """Delay the rest of the pass by so long, in seconds, as it stood still."""
        self._start_s += seconds
        self._awake_since_s += seconds

    def sleep_until(self, since_start_s: float) -> None:
        """Sleep, without the interpreter's lock, until so many seconds of the pass have gone by, times the jitter."""
        now_s = time.monotonic()
        left_s = self._start_s + since_start_s * self._factor - now_s
        self._busy_s += now_s - self._awake_since_s
        self._late_s = max(0.0, -left_s)
        if left_s > _SHORTEST_SLEEP_S:
            time.sleep(left_s)
            now_s = time.monotonic()  # an awakening that is late is none of the rank's work
        self._awake_since_s = now_s

    def end_iteration(self) -> dict[str, float]:
        """End an iteration; return, for its log, the seconds that its passes absorbed, and its jitter if it has one."""
        self._end_pass()
        fields = {"absorbed_s": round(self._absorbed_s, 9)}
        self._absorbed_s = 0.0
        if self._jitter is not None:
            fields["jitter"] = round(self._factor, 9)
            self._factor = self._jitter.next()
        return fields

    def _end_pass(self) -> None:
        self._absorbed_s += max(0.0, self._busy_s - self._late_s)
        self._busy_s = self._late_s = 0.0


class Jitter:
    """Factors of the compute time of one iteration after the other, drawn from recorded ones.

    Stretches of consecutive recorded factors, of random length and beginning, keep how iterations resemble the one
    before: the stationary bootstrap (Politis and Romano, 1994).
    """

    def __init__(self, recorded: list[float], *, stretch: float, seed: str) -> None:
        """Draw from `recorded` in stretches of a mean length, in iterations."""
        self._recorded = recorded
        self._ends = 1.0 / stretch  # probability that a stretch ends with an iteration
        self._draw = random.Random(seed)  # noqa: S311 - a model, no secret
        self._place = self._draw.randrange(len(recorded))

    def next(self) -> float:
        """Return the next iteration's factor."""
        factor = self._recorded[self._place]
        if self._draw.random() < self._ends:
            self._place = self._draw.randrange(len(self._recorded))
        else:
            self._place = (self._place + 1) % len(self._recorded)
        return factor


def clock_of(config: Jittered, rank: int) -> ComputeClock:
    """Return a rank's clock, with the jitter that the settings ask for."""
    return ComputeClock(jitter_of(config, rank))


def jitter_of(config: Jittered, rank: int) -> Jitter | None:
    """Return the jitter of a rank's compute; None where the settings ask for none."""
    given = config.get("jitter")
    if given is None:
        return None
    whose = "all" if given["common"] else str(rank)
    return Jitter(given["factors"], stretch=given["stretch"], seed=f"{given['seed']} jitter {whose}")


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
