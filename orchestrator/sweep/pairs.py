"""Take two settings of sealed runs, between which there is an effect, as a pair: two experiments, and a sweep of both.

What a run's folder says is data. Hosts of this machine are made as its file has them; others are those of a testbed
that the caller names.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any, cast

from orchestrator.analysis.compare import comparing, regression
from orchestrator.analysis.compare.comparing import Comparison
from orchestrator.core import where
from orchestrator.core.errors import ConfigError, TestbedError, shortened
from orchestrator.core.opendata import YamlMapping
from orchestrator.core.units import share_text
from orchestrator.core.where import Condition
from orchestrator.experiment import documents, loading, sweepfile, testbeds
from orchestrator.experiment.documents import Document
from orchestrator.experiment.experiment import Experiment, resolved_data
from orchestrator.experiment.experiment import model as experiment_model
from orchestrator.experiment.sweepfile import Definition
from orchestrator.experiment.testbeds import Named
from orchestrator.experiment.until import Statistic
from orchestrator.experiment.validation import validate
from orchestrator.store import rundir, sweeps
from orchestrator.store.manifests.summaries import Summary
from orchestrator.store.rundir import Entry

LEAST, MOST = 4, 12  # repetitions of a pair
PLACE = "the smaller pair"  # where mistakes in it are
LISTS = ("conditions", "traffic", "collect")
_OF_ONE_SIDE = ("name", "repetitions", "local_run")
_OF_BOTH = ("measure", "validity", "captures", "seed")  # say how one measures: those of the reference hold for both


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two settings as the data of experiments with every default, `a` the reference.

    `together` says that both are windows of one run, else each is a run of its own.
    """

    a: YamlMapping
    b: YamlMapping
    together: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Took:
    """What a measurement of one side took on average: seconds of its window, and of its run beside the window."""

    window_s: float
    beside_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """An effect that sealed runs show: the `ratio` of a statistic, b over a; `text` tells it with its interval."""

    name: str
    pair: Pair
    of: Statistic
    ratio: float
    text: str
    took: Took

    @property
    def excluded(self) -> float:
        """Return the change that ends the repetitions of a pair without an effect once it is excluded: half of this."""
        return float(f"{min(1.0, abs(self.ratio - 1) / 2):.3g}")


def effect(
    results: Path,
    a: str,
    b: str | None,
    *,
    by: str | None = None,
    conditions: Sequence[Condition] = (),
    named: Sequence[Named] = (),
) -> Effect:
    """Return the largest effect between two sides of a comparison, at the points that keep to all conditions.

    Sides are two names, or two values of an axis of the sweep `a`: `by` is AXIS=V,W, or follows from its file.
    ConfigError where no point is better or worse, or nothing that was set explains it.
    """
    found = comparing.compare(results, a, b, rule=regression.DEFAULT, settings=True) if b else _by(results, a, by)
    windows = [{one.key: one for one in side.windows} for side in (found.a, found.b)]  # the last of each point
    changed = [
        point
        for point in found.changes
        if point.verdict in ("worse", "better")
        and all(condition.holds(windows[1][point.point].values) for condition in conditions)
    ]
    if not changed:
        within = " of those that --where leaves" if conditions else ""
        raise ConfigError(
            f"{found.b.name} against {found.a.name}: no point{within} is better or worse: there is nothing to shrink"
        )
    clearest = max(changed, key=lambda point: abs(math.log(comparing.telling(point).ratio)))
    sides = [side[clearest.point] for side in windows]
    first, second = (_setting(one.entry, one.record.name, named) for one in sides)
    alike = {key: first[key] for key in _OF_BOTH if key in first}
    pair = Pair(a=first, b={**{key: value for key, value in second.items() if key not in _OF_BOTH}, **alike})
    pair = replace(pair, together=sides[0].entry.run == sides[1].entry.run and may_be_together(pair))
    if not difference(pair):
        raise ConfigError(f"{found.b.name} and {found.a.name} were set alike: no part of the files makes the effect")
    telling = comparing.telling(clearest)
    return Effect(
        name=sides[0].entry.manifest.experiment,
        pair=pair,
        of=cast("Statistic", telling.statistic),
        ratio=telling.ratio,
        text=f"{found.labels[clearest.point]}: {comparing.change_text(clearest)}",
        took=took([(one.entry.manifest, one.record.seconds) for one in sides]),
    )


def _by(results: Path, wanted: str, by: str | None) -> Comparison:
    """Compare two values of an axis of a sweep; without `by` those of its own `until`, or of its only axis."""
    if by is None:
        plan = sweeps.find(results, wanted).plan
        until = plan.sweep.get("until", {})
        between, other = until.get("between", {}), until.get("and", {})
        if len(between) == 1:
            ((axis, value),) = between.items()
            return comparing.compare_axis(
                results, wanted, axis, [str(value), str(other[axis])], rule=regression.DEFAULT
            )
        if len(plan.axes) != 1:
            raise ConfigError(f"{wanted}: has several axes; accepted: --by AXIS=V,W with one of {', '.join(plan.axes)}")
        by = plan.axes[0]
    axis, _, values = by.partition("=")
    return comparing.compare_axis(results, wanted, axis, [*filter(None, values.split(","))], rule=regression.DEFAULT)


def took(windows: Sequence[tuple[Summary, float]]) -> Took:
    """Return what measurements took: windows with the manifests of their runs, and their seconds as these have them."""
    runs = {manifest.run: manifest for manifest, _ in windows}.values()
    beside = [
        run.phases.get("total", 0.0) - run.dilation * sum(window.seconds for window in run.windows) for run in runs
    ]
    return Took(window_s=mean(seconds * manifest.dilation for manifest, seconds in windows), beside_s=mean(beside))


def _setting(entry: Entry, window: str, named: Sequence[Named]) -> YamlMapping:
    """Return the experiment of one window of a sealed run, as data with every default."""
    rundir.refuse_anothers(entry)
    experiment = loading.sealed(entry.path)
    if experiment.testbed.local is None:
        experiment = experiment.model_copy(update={"testbed": _reached(entry, named).choice})
    data = {key: value for key, value in resolved_data(experiment).items() if key not in _OF_ONE_SIDE}
    windows = {one["name"]: one for one in data.pop("windows", ())}
    if window in windows:
        data["traffic"] = windows[window].get("traffic", [])
        data["measure"] = {**data["measure"], **windows[window].get("measure", {})}
    return {**{key: [] for key in LISTS}, **data}


def _reached(entry: Entry, named: Sequence[Named]) -> Named:
    """Return the named testbed that has all hosts of a run."""
    hosts = entry.manifest.topology.hosts
    for one in named:
        if not any(one.lacks(host) for host in hosts):
            return one
    reasons = [reason for one in named for host in hosts if (reason := one.lacks(host))]
    raise TestbedError(
        "; ".join(dict.fromkeys(reasons))
        or f"the hosts of {entry.run} are reached only by a testbed that you name, not by what lies in its folder",
        hint=f"--testbed FILE, {testbeds.NAMED}",
    )


# As a sweep


def difference(pair: Pair) -> dict[str, tuple[Any, Any]]:
    """Return where the settings of a pair differ, by key path, with the value of either."""
    return dict(_differing(pair.a, pair.b, ()))


def _differing(a: Any, b: Any, at: tuple[str | int, ...]) -> Iterator[tuple[str, tuple[Any, Any]]]:
    if a == b:
        return
    keys: Sequence[str | int] = ()
    if isinstance(a, dict) and isinstance(b, dict) and (a.keys() == b.keys() or not at):
        keys = list(dict.fromkeys([*a, *b]))
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        keys = range(len(a))
    if not keys or any("." in str(key) or str(key) == "*" for key in keys):
        yield documents.dotted(at), (a, b)
        return
    for key in keys:
        first, second = (side.get(key) if isinstance(side, dict) else side[key] for side in (a, b))
        yield from _differing(first, second, (*at, key))


def digest(pair: Pair) -> str:
    """Return a digest of a pair, the same on any day."""
    text = json.dumps([pair.a, pair.b, pair.together], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def as_sweep(pair: Pair, name: str, *, of: Statistic, excluded: float) -> YamlMapping:
    """Return a sweep file of both settings, in turns (A B, B A) until their ratio differs from 1 or hardly does."""
    apart = difference(pair)
    labels = {path: _labels(*values) for path, values in apart.items()}
    axes = {
        path: list(labels[path]) if labels[path] == values else {"named": dict(zip(labels[path], values, strict=True))}
        for path, values in apart.items()
    }
    until = {
        "effect": share_text(excluded),
        "of": of,
        "between": {path: label[0] for path, label in labels.items()},
        "and": {path: label[1] for path, label in labels.items()},
        "least": LEAST,
        "most": MOST,
    }
    return {
        "name": name,
        "experiment": _brief(pair.a),
        **({"zip": [axes]} if len(axes) > 1 else {"axes": axes}),
        "until": until,
        "order": "alternate",
        "draws": "common",
        "mode": "windows" if pair.together else "runs",
    }


def value_text(value: Any) -> str:
    """Return a value of a setting for people, in short."""
    return shortened(where.text_of(value))


def _labels(a: Any, b: Any) -> tuple[Any, Any]:
    """Return the values themselves where a line can hold them, else a letter for each."""
    plain = all(isinstance(one, int | float) or (isinstance(one, str) and one and one[0] not in "<>") for one in (a, b))
    return (a, b) if plain and json.dumps(a) != json.dumps(b) else ("A", "B")


def _brief(data: YamlMapping) -> YamlMapping:
    """Return an experiment without what is its default anyway, and without a name, which is the sweep's."""
    experiment = experiment_of(data)
    dumped: YamlMapping = experiment.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
    return {key: value for key, value in dumped.items() if key != "name"}


def experiment_of(data: YamlMapping) -> Experiment:
    """Return the experiment of one setting."""
    return validate(Document(name=PLACE, data={"name": "pair", **data}, root=None), experiment_model())


def definition(data: YamlMapping) -> Definition:
    """Return the sweep of a pair; ConfigError at `PLACE` where it cannot be planned."""
    return sweepfile.definition(Document(name=PLACE, data=data, root=None), local=False)


def with_both(pair: Pair, a: YamlMapping, b: YamlMapping) -> Pair:
    """Return the pair with other settings; it is in one run no longer where that is not possible."""
    changed = replace(pair, a=a, b=b)
    return replace(changed, together=pair.together and may_be_together(changed))


def may_be_together(pair: Pair) -> bool:
    """Return whether both can be windows of one run, since their traffic alone differs."""
    return all(path == "traffic" or path.startswith("traffic.") for path in difference(pair))
