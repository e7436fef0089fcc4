"""Vary an experiment (`--what-if`): every combination of named values, accelerators' compute times too."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.core.errors import ConfigError
from orchestrator.core.units import quantity
from orchestrator.experiment import fitting, loading
from orchestrator.experiment.experiment import Experiment, TestbedChoice
from orchestrator.parts import registry
from workloads.common import trained_model
from workloads.models import catalog, formulation, gpt

LINK, ACCELERATOR, SPLIT, ALL = "link", "accelerator", "ptd", "all"
MOST = 1000

_DIMENSIONS = ("pipeline", "tensor", "data")

ACCEPTED = "peak and used share of it, such as 71tflops@30%"

_TEXT = re.compile(r"([0-9]+(?:\.[0-9]+)?)tflops@([0-9]+(?:\.[0-9]+)?)%")
_PASSES = 3  # a backward pass has twice the work of a forward pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One combination: its name, and the experiment that it makes."""

    label: str
    experiment: Experiment


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A key of `--what-if` and its values, as texts."""

    key: str
    values: tuple[str, ...]


def axes(options: Sequence[str]) -> list[Axis]:
    """Return the axes that options KEY=VALUE,VALUE,... name; brackets hold commas together."""
    found = []
    for option in options:
        key, equals, text = option.partition("=")
        values = tuple(_split(text))
        if not equals or not key or not all(values):
            raise ConfigError(f"--what-if {option}: not KEY=VALUE; accepted: such as {LINK}=25gbit,100gbit")
        found.append(Axis(key=key, values=values))
    return found


def is_load(axes: Sequence[Axis]) -> bool:
    """Return whether all that changes is a load."""
    return len(axes) == 1 and axes[0].key.rpartition(".")[2] == "load"


def _split(text: str) -> Iterator[str]:
    """Split values at the commas that no bracket holds."""
    depth, begin = 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "[{") - (letter in "]}")
        if letter == "," and depth == 0:
            yield text[begin:place].strip()
            begin = place + 1
    yield text[begin:].strip()


def settings(path: Path, overrides: Sequence[str], wanted: Sequence[Axis], *, local: bool) -> list[Setting]:
    """Return the experiment of a file in every combination of the axes, or as it is where there are none."""
    base, _ = loading.checked(path, overrides, local=local)
    if not wanted:
        return [Setting(label="as it is", experiment=base)]
    spread = [_spread(axis, base) for axis in wanted]
    count = 1
    for axis in spread:
        count *= len(axis.values)
    if count > MOST:
        raise ConfigError(f"--what-if: {count} combinations; accepted: at most {MOST}")
    return [
        _setting(path, overrides, [axis.key for axis in spread], values, base=base, local=local)
        for values in itertools.product(*(axis.values for axis in spread))
    ]


def _spread(axis: Axis, base: Experiment) -> Axis:
    """Replace the axis `ptd=all` by every p x t x d of the experiment's ranks in which its model can be split."""
    if axis.key != SPLIT or axis.values != (ALL,):
        return axis
    choice = base.all_jobs()[0].workload
    if choice.name != SPLIT:
        raise ConfigError(
            f"--what-if {SPLIT}={ALL}: {choice.name} is not split; accepted: a file with workload {SPLIT}"
        )
    ranks = len(choice.config.hosts or fitting.topology_of(base).placed)
    splits = [
        (p, t, ranks // p // t)
        for p in range(1, ranks + 1)
        if ranks % p == 0
        for t in range(1, ranks // p + 1)
        if ranks // p % t == 0 and _fits(base, choice.config, p, t, ranks // p // t)
    ]
    return Axis(key=SPLIT, values=tuple("x".join(map(str, split)) for split in splits))


def _fits(base: Experiment, config: Any, p: int, t: int, d: int) -> bool:
    """Return whether the model can be split so, into whole micro-batches, without any other problem."""
    count = microbatches(config, d)
    if count is None:
        return False
    changed = config.model_copy(update={**dict(zip(_DIMENSIONS, (p, t, d), strict=True)), "microbatches": count})
    return not registry.workload(SPLIT).problems(changed, fitting.topology_of(base))


def microbatches(config: Any, replicas: int) -> int | None:
    """Return the micro-batches of each of so many replicas that share the same samples; None for no whole number.

    With as many ranks as before each computes as long as before, so that splits are compared at the same work.
    """
    total = config.microbatches * config.data
    return total // replicas if total % replicas == 0 else None


def _setting(
    path: Path, overrides: Sequence[str], keys: Sequence[str], values: Sequence[str], *, base: Experiment, local: bool
) -> Setting:
    chosen = dict(zip(keys, values, strict=True))
    label = ", ".join(f"{key}={value}" for key, value in chosen.items())
    link, accelerator = chosen.pop(LINK, ""), chosen.pop(ACCELERATOR, "")
    changes = [*overrides, *(change for key, value in chosen.items() for change in _changes(key, value, base))]
    try:
        experiment, document = loading.checked(path, changes, local=local)
        if accelerator:
            choice = experiment.all_jobs()[0].workload
            seconds = compute_s(accelerator, choice.name, choice.config)
            changes.append(f"{_workload(base)}.compute_time={seconds!r}s")
            experiment, document = loading.checked(path, changes, local=local)
        if link:
            experiment = with_link(experiment, link)
            experiment = fitting.fitted(experiment, document.place)
    except ConfigError as error:
        raise ConfigError(f"--what-if {label}: {error}") from None
    return Setting(label=label, experiment=experiment)


def _workload(base: Experiment) -> str:
    """Return the path of the workload's options."""
    return f"{'jobs.0.' if base.jobs else ''}workload.{base.all_jobs()[0].workload.name}"


def _changes(key: str, value: str, base: Experiment) -> list[str]:
    """Return the overrides that a key stands for: a path, an option of the workload, or all that a split changes."""
    if "." in key:
        return [f"{key}={value}"]
    if key != SPLIT:
        return [f"{_workload(base)}.{key}={value}"]
    sizes = value.split("x")
    if len(sizes) != len(_DIMENSIONS) or not all(size.isdecimal() and int(size) for size in sizes):
        raise ConfigError(f"{SPLIT}={value}: not a split; accepted: such as 2x2x4 (p x t x d), or {ALL}")
    choice = base.all_jobs()[0].workload
    if choice.name != SPLIT:
        raise ConfigError(f"{SPLIT}={value}: {choice.name} is not split; accepted: a file with workload {SPLIT}")
    count = microbatches(choice.config, int(sizes[-1]))
    if count is None:
        total = choice.config.microbatches * choice.config.data
        raise ConfigError(
            f"{SPLIT}={value}: {total} micro-batches cannot be divided among {sizes[-1]} replicas; accepted: a divisor"
        )
    dimensions = [f"{_workload(base)}.{name}={size}" for name, size in zip(_DIMENSIONS, sizes, strict=True)]
    return [*dimensions, f"{_workload(base)}.microbatches={count}"]


def with_link(experiment: Experiment, text: str) -> Experiment:
    """Return the experiment with all links of this rate."""
    kind, rate = quantity(text) or ("", 0.0)
    if kind != "rate" or rate <= 0:
        raise ConfigError(f"{LINK}={text}: not a rate; accepted: a number and a unit, such as 100gbit")
    testbed = experiment.testbed
    if testbed.local is not None:
        local = testbed.local.model_copy(update={"link": rate, "links": {}})
        return experiment.model_copy(update={"testbed": TestbedChoice.model_construct(local=local)})
    if testbed.inventory is None:
        raise AssertionError("the model lets one of both through")
    hosts = {name: host.model_copy(update={"link": None}) for name, host in testbed.inventory.hosts.items()}
    inventory = testbed.inventory.model_copy(update={"link": rate, "hosts": hosts})
    return experiment.model_copy(update={"testbed": TestbedChoice.model_construct(inventory=inventory)})


def compute_s(text: str, workload: str, config: Any) -> float:
    """Return the seconds in which a rank computes in an iteration; `text` is F and mu as ACCEPTED says."""
    match = _TEXT.fullmatch(text)
    if match is None or not float(match[1]) or not 0 < float(match[2]) <= 100:
        raise ConfigError(f"accelerator={text}: not an accelerator; accepted: {ACCEPTED}")
    f, mu = float(match[1]) * 1e12, float(match[2]) / 100
    if workload == "ptd":
        return _of_split(config, f=f, mu=mu)
    layers = catalog.load(config.model).layers
    return _PASSES * sum(layer.flops for layer in layers) * trained_model.batch(config) / (mu * f)


def _of_split(config: Any, *, f: float, mu: float) -> float:
    """Return the seconds of computing by equation 9, with N of equation 10.

    There are 6 FLOPs a parameter and token without recomputation.
    """
    shape = gpt.shape_of(config.model)
    split = formulation.Split(p=config.pipeline, t=config.tensor, d=config.data, m=config.microbatches, b=config.batch)
    parameters = formulation.parameters(
        layers=shape.layers, h=shape.hidden, s=shape.sequence, vocabulary=shape.vocabulary
    )
    per_token = formulation.FLOPS if config.recompute else formulation.FLOPS - 2
    return formulation.compute_s(split, parameters=parameters, s=shape.sequence, f=f, mu=mu, per_token=per_token)
