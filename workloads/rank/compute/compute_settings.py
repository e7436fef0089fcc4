"""What the programs of ranks are told of their model."""

from __future__ import annotations

from typing import Literal, TypedDict

from ..base.rank_settings import LayerPlan


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


class Settings(EmulatedSettings, RealSettings):
    """A model of either kind."""

    compute: Literal["emulated", "real"]
