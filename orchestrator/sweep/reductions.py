"""Make a pair of settings smaller, one step at a time: both sides in the same way, so that they still differ; pure.

Steps of one dimension are a ladder from the smallest value to the largest below that of the pair. Some cannot be
planned: that is for the caller to find out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from orchestrator.core import units
from orchestrator.core.opendata import YamlMapping
from orchestrator.experiment import fitting
from orchestrator.parts.collectors import tcpdump
from orchestrator.sweep import pairs
from orchestrator.sweep.pairs import Pair
from orchestrator.validity.gates import iterations
from workloads.models import catalog

WARM_UPS = (2, 5, 10)  # iterations
_SHORTEST_S = 2.0  # of a window that ends by time
_FEWEST_RANKS = 2

Edit = Callable[[YamlMapping], YamlMapping]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A pair that is smaller in one dimension, in which it has this value; `text` says what is smaller."""

    dimension: str
    value: str
    text: str
    pair: Pair


def ladders(pair: Pair) -> dict[str, list[Step]]:
    """Return what could be smaller, by dimension, each from the smallest value to the largest."""
    found: dict[str, list[Step]] = {}
    for step in (
        *_shorter(pair),
        *_ranks(pair),
        *_unused_hosts(pair),
        *_models(pair),
        *_in_one_run(pair),
        *_left_out(pair),
        *_fewer_differences(pair),
    ):
        if step.pair != pair and pairs.difference(step.pair):
            found.setdefault(step.dimension, []).append(step)
    return found


def _both(pair: Pair, edit: Edit) -> Pair:
    return pairs.with_both(pair, edit(pair.a), edit(pair.b))


def _with(data: YamlMapping, way: Sequence[str | int], value: Any) -> YamlMapping:
    """Return data with another value at a path that exists; what is at none is left as it is."""
    found: YamlMapping = _replaced(data, way, value)
    return found


def _replaced(data: Any, way: Sequence[str | int], value: Any) -> Any:
    if not way:
        return value
    step, rest = way[0], way[1:]
    if isinstance(data, dict) and step in data:
        return {**data, step: _replaced(data[step], rest, value)}
    if isinstance(data, list) and isinstance(step, int) and step < len(data):
        return [*data[:step], _replaced(data[step], rest, value), *data[step + 1 :]]
    return data


# How long one measures


def _shorter(pair: Pair) -> Iterator[Step]:
    measure, validity = pair.a["measure"], pair.a.get("validity", {})
    fewest = int(validity.get(iterations.FEWEST.key, iterations.FEWEST.default))
    now = measure.get("iterations")
    for count in _doubled(fewest, now or 0):
        smaller = _both(pair, partial(_with, way=("measure", "iterations"), value=count))
        yield Step(dimension="iterations", value=str(count), text=f"iterations {now} to {count}", pair=smaller)
    if now is None:
        longest = units.quantity(measure["at_most"])
        for seconds in _doubled(_SHORTEST_S, 0.0 if longest is None else longest[1]):
            text = units.duration_text(seconds)
            smaller = _both(pair, partial(_with, way=("measure", "at_most"), value=text))
            yield Step(dimension="time", value=text, text=f"window {measure['at_most']} to {text}", pair=smaller)
    warmup = measure["warmup"]
    for count in WARM_UPS:
        if count < (measure["warmup_most"] if warmup == "auto" else warmup):
            smaller = _both(pair, partial(_with, way=("measure", "warmup"), value=count))
            yield Step(dimension="warm-up", value=str(count), text=f"warm-up {warmup} to {count}", pair=smaller)


def _doubled(least: float, below: float) -> Iterator[Any]:
    while least < below:
        yield least
        least *= 2


# Hosts and ranks


def _jobs(data: YamlMapping) -> dict[tuple[str | int, ...], YamlMapping]:
    """Return the configuration of the workload of each job, by its path."""
    whole: list[tuple[str | int, ...]] = [("jobs", place, "workload") for place in range(len(data.get("jobs", ())))]
    if "workload" in data:
        whole = [("workload",)]
    found: dict[tuple[str | int, ...], YamlMapping] = {}
    for way in whole:
        workload: Any = data
        for step in way:
            workload = workload[step]
        ((kind, config),) = workload.items()
        path = (*way, kind)
        found[path] = config
    return found


def _ranks(pair: Pair) -> Iterator[Step]:
    """Yield fewer ranks of each job, whose hosts all others are left out with; hosts that traffic uses stay longest."""
    placed = fitting.topology_of(pairs.experiment_of(pair.a)).placed
    for way, config in _jobs(pair.a).items():
        hosts = config.get("hosts") or placed
        elsewhere = _mentioned({key: value for key, value in pair.a.items() if key in pairs.LISTS}, set(hosts))
        in_order = sorted(hosts, key=lambda host: host not in elsewhere)
        name = "ranks" if way[0] == "workload" else f"ranks of {pair.a['jobs'][way[1]]['name']}"
        for count in range(_FEWEST_RANKS, len(hosts)):
            kept = sorted(in_order[:count], key=hosts.index)
            smaller = _both(pair, partial(_with_ranks, way=way, hosts=kept))
            yield Step(dimension=name, value=str(count), text=f"{name} {len(hosts)} to {count}", pair=smaller)


def _with_ranks(data: YamlMapping, way: Sequence[str | int], hosts: Sequence[str]) -> YamlMapping:
    config = _jobs(data).get(tuple(way))
    return data if config is None else _pruned(_with(data, way, {**config, "hosts": list(hosts)}))


def _unused_hosts(pair: Pair) -> Iterator[Step]:
    smaller = _both(pair, _pruned)
    yield Step(dimension="hosts", value="used", text="hosts without those that nothing uses", pair=smaller)


def _pruned(data: YamlMapping) -> YamlMapping:
    """Leave out hosts of this machine that nothing uses; those of a fabric follow from its leaves, and stay."""
    local = data["testbed"].get("local")
    if local is None or local.get("fabric") is not None:
        return data
    names = list(fitting.topology_of(pairs.experiment_of(data)).placed)
    if any(config.get("hosts") is None for config in _jobs(data).values()):
        return data
    used = _mentioned({key: value for key, value in data.items() if key != "testbed"}, set(names))
    kept = [name for name in names if name in used]
    if len(kept) in (len(names), 0, 1):
        return data
    links = {name: rate for name, rate in local["links"].items() if name in kept}
    return _with(data, ("testbed", "local"), {**local, "hosts": kept, "links": links})


def _mentioned(data: Any, names: set[str]) -> set[str]:
    """Return which of these names stand anywhere in data."""
    if isinstance(data, str):
        return {data} & names
    below = data.values() if isinstance(data, Mapping) else data if isinstance(data, list) else ()
    return {name for inner in below for name in _mentioned(inner, names)}


# What trains


def _models(pair: Pair) -> Iterator[Step]:
    """Yield models with fewer parameters for each job."""
    by_size = sorted(catalog.names(), key=lambda name: catalog.load(name).parameters)
    for way, config in _jobs(pair.a).items():
        model = config.get("model")
        if model not in by_size:
            continue
        name = "model" if way[0] == "workload" else f"model of {pair.a['jobs'][way[1]]['name']}"
        for smaller in by_size[: by_size.index(model)]:
            changed = _both(pair, partial(_with, way=(*way, "model"), value=smaller))
            yield Step(dimension=name, value=smaller, text=f"{name} {model} to {smaller}", pair=changed)


# What is there besides


def _in_one_run(pair: Pair) -> Iterator[Step]:
    if not pair.together and pairs.may_be_together(pair):
        together = replace(pair, together=True)
        yield Step(dimension="runs", value="one", text="both sides in one run", pair=together)


def _left_out(pair: Pair) -> Iterator[Step]:
    """Yield the pair without collectors, a source of traffic, a condition or a job that both sides have."""
    if len(pair.a["collect"]) > 1 and pair.a["collect"] == pair.b["collect"]:
        without = _both(pair, lambda data: _consistent({**data, "collect": []}))
        yield Step(dimension="collect", value="none", text="no collectors", pair=without)
    for key in (*pairs.LISTS, "jobs"):
        for entry in pair.a.get(key, ()):
            if entry not in pair.b.get(key, ()) or (key == "jobs" and len(pair.a[key]) == 1):
                continue
            name = entry["name"] if key == "jobs" else next(iter(entry))
            without = _both(pair, partial(_without, key=key, entry=entry))
            dimension = f"{key} {json.dumps(entry, sort_keys=True)}"
            yield Step(dimension=dimension, value="none", text=f"{key} without {name}", pair=without)


def _without(data: YamlMapping, key: str, entry: YamlMapping) -> YamlMapping:
    place = data[key].index(entry)
    return _consistent(_pruned({**data, key: [*data[key][:place], *data[key][place + 1 :]]}))


def _consistent(data: YamlMapping) -> YamlMapping:
    """Leave out what says how captures are treated where nothing is captured."""
    captured = any(tcpdump.NAME in entry for entry in data["collect"])
    return data if captured else {key: value for key, value in data.items() if key != "captures"}


def _fewer_differences(pair: Pair) -> Iterator[Step]:
    """Yield the pair with one difference less, where both sides have what the reference has."""
    apart = pairs.difference(pair)
    if len(apart) < 2:
        return
    for path, (first, _) in apart.items():
        way = [int(step) if step.isdigit() else step for step in path.split(".")]
        alike = pairs.with_both(pair, pair.a, _with(pair.b, way, first))
        yield Step(dimension=f"difference {path}", value="none", text=f"{path} alike on both sides", pair=alike)
