"""Find the parts: every module of a part folder that has a NAME and a Config is a key that a YAML file may use.

So is every part that another package offers by an entry point (`outside`).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Literal, cast

from orchestrator.parts import outside
from orchestrator.parts.outside import Unusable
from orchestrator.parts.protocols import (
    Collector,
    Condition,
    NodeCollector,
    Part,
    RankWatcher,
    RankWrapper,
    Traffic,
    Workload,
)

Kind = Literal["workload", "traffic", "collector", "condition"]

COLLECTOR = "collector."  # how the label of a collector begins (`by_label`)
FOLDERS: Mapping[Kind, str] = MappingProxyType(
    {
        "workload": "workloads",
        "traffic": "cross_traffic",
        "collector": "orchestrator.parts.collectors",
        "condition": "orchestrator.parts.conditions",
    }
)


@cache
def parts_of(kind: Kind) -> Mapping[str, Part]:
    """Return the parts of a kind by their names in YAML, in alphabetical order."""
    own = own_parts(kind)
    others = cast("dict[str, Part]", outside.offered(kind, own)[0])
    return MappingProxyType(dict(sorted({**own, **others}.items())))


@cache
def unusable() -> tuple[Unusable, ...]:
    """Return the parts that other packages offer and that cannot be used."""
    return tuple(one for kind in FOLDERS for one in outside.offered(kind, own_parts(kind))[1])


@cache
def own_parts(kind: Kind) -> Mapping[str, Part]:
    """Those of this project."""
    folder = importlib.import_module(FOLDERS[kind])
    modules = (
        importlib.import_module(f"{FOLDERS[kind]}.{entry.name}")
        for entry in pkgutil.iter_modules(folder.__path__)
        if not entry.ispkg
    )
    parts = {module.NAME: cast("Part", module) for module in modules if hasattr(module, "NAME")}
    return MappingProxyType(parts)


def workload(name: str) -> Workload:
    return cast("Workload", parts_of("workload")[name])


def traffic(name: str) -> Traffic:
    return cast("Traffic", parts_of("traffic")[name])


def collector(name: str) -> Collector:
    return cast("Collector", parts_of("collector")[name])


def node_collector(name: str) -> NodeCollector | None:
    """Return the collector, where it watches nodes."""
    return cast("NodeCollector | None", _with(name, "launches"))


def rank_watcher(name: str) -> RankWatcher | None:
    """Return the collector, where it is started with the ranks that run."""
    return cast("RankWatcher | None", _with(name, "rank_launches"))


def rank_wrapper(name: str) -> RankWrapper | None:
    """Return the collector, where it runs as a command around ranks."""
    return cast("RankWrapper | None", _with(name, "wrapper"))


def _with(name: str, function: str) -> Part | None:
    found = parts_of("collector")[name]
    return found if hasattr(found, function) else None


def condition(name: str) -> Condition:
    return cast("Condition", parts_of("condition")[name])


def by_label(label: str) -> Any:
    """Return the part that `label` ("traffic.iperf", as in a manifest) names; LookupError where it is not installed."""
    kind, _, name = label.partition(".")
    found = parts_of(cast("Kind", kind)).get(name)
    if found is None:
        raise LookupError(f"no {kind} {name} is installed; the manifest's `versions` name the packages that had parts")
    return found
