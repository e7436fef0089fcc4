"""Define `until`: what has to be known before repetitions end."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from orchestrator.core.fields import Model, Share
from orchestrator.core.opendata import YamlMapping
from orchestrator.core.units import Mistake

Statistic = Literal["mean", "p50", "p99"]

MOST_REPETITIONS = 200
_TWO_SIDES = "such as {effect: 3%, between: {model: resnet50}, and: {model: vgg16}}"


class Until(Model):
    """When repetitions end: as soon as an interval is narrow enough, or an effect is found or excluded."""

    interval: Share | None = Field(default=None, gt=0, le=1)
    """End the repetitions of a point once the 95 % interval of its level reaches no further than this from it."""
    of: Statistic = "mean"
    """Whose level: the runs' means, medians or 99th percentiles."""
    effect: Share | None = Field(default=None, gt=0, le=1)
    """Instead of `interval`, end the repetitions of two sides once the 95 % interval of their ratio leaves out "no
    change", or lies within this change."""
    between: YamlMapping = Field(default_factory=dict)
    """The reference: values of axes of the sweep that its points have, as in `exclude`."""
    and_: YamlMapping = Field(default_factory=dict, alias="and")
    """The side that is compared with it, by other values of the same axes."""
    least: int = Field(default=3, ge=2, le=MOST_REPETITIONS)
    """Fewest repetitions; all points have so many."""
    most: int = Field(default=20, ge=2, le=MOST_REPETITIONS)
    """Most repetitions of a point, whatever is known by then."""

    @model_validator(mode="after")
    def _one_question(self) -> Until:
        if (self.interval is None) == (self.effect is None):
            raise Mistake("holds no question, or two", accepted="exactly one of interval, effect")
        if self.most < self.least:
            raise Mistake("fewer than least", accepted=f"{self.least} or more", at=("most",))
        for key, side in (("between", self.between), ("and", self.and_)):
            if self.effect is None and side:
                raise Mistake("stands without effect", accepted=_TWO_SIDES, at=(key,))
            if self.effect is not None and not side:
                raise Mistake("two sides are compared", accepted=_TWO_SIDES, at=(key,))
        if self.between.keys() != self.and_.keys():
            raise Mistake("other axes than between", accepted=f"values of {', '.join(self.between)}", at=("and",))
        return self
