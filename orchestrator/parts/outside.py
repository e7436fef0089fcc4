"""Find and check parts of other packages, which these name as entry points; tell the package of one that breaks.

A package that offers a workload writes into its pyproject.toml

    [project.entry-points."orch.workloads"]
    ping-pong = "mylab_parts.pingpong"

(the entry points specification of the Python Packaging Authority). Nothing that such a package does wrong costs anybody
who does not use its parts more than a line of `orch doctor`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from orchestrator.core.errors import OrchError
from orchestrator.core.fields import Model
from orchestrator.parts import protocols

GROUPS: Mapping[str, str] = {
    "workload": "orch.workloads",
    "traffic": "orch.traffic",
    "collector": "orch.collectors",
    "condition": "orch.conditions",
    "gate": "orch.gates",
}
_PROTOCOLS: Mapping[str, type] = {
    "workload": protocols.Workload,
    "traffic": protocols.Traffic,
    "collector": protocols.Collector,
    "condition": protocols.Condition,
}
_NAME = re.compile(r"[a-z][a-z0-9-]{0,40}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unusable:
    """A part that a package offers and that cannot be used."""

    kind: str
    name: str
    package: str  # and its version
    why: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name} of the package {self.package} cannot be used: {self.why}"


class Outside:
    """A part of another package: what its functions raise becomes one error that names it and its package."""

    def __init__(self, module: Any, *, kind: str, package: str) -> None:
        self.module = module
        self.kind = kind
        self.package = package

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.module, name)
        return found if isinstance(found, type) or not callable(found) else self._guarded(name, found)

    def _guarded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def called(*arguments: Any, **named: Any) -> Any:
            try:
                return function(*arguments, **named)
            except OrchError:
                raise
            except Exception as error:  # somebody else's code: whatever it raises is told as theirs
                reason = f"{type(error).__name__}: {error}".partition("\n")[0]
                what = f"{self.kind} {self.module.NAME} of the package {self.package}"
                raise OrchError(
                    f"{what}: {name}: {reason}", hint="report it to whoever maintains that package"
                ) from error

        return called


def offered(
    kind: str, own: Mapping[str, object], *, fault: Callable[[Any], str] | None = None
) -> tuple[dict[str, Outside], list[Unusable]]:
    """Return the parts of a kind that other packages offer, by name, and those that cannot be used.

    `own` are the names of this project's parts, which no other package takes. `fault` says what a module lacks, empty
    for nothing; by default it needs a Config and the functions of the kind's protocol.
    """
    found: dict[str, Outside] = {}
    unusable = []
    for entry in _entry_points()[kind]:
        package = _package(entry)
        why = "this name is that of a part of orch" if entry.name in own else ""
        if entry.name in found:
            why = f"{found[entry.name].package} offers one of this name, too"
        if not why:
            part, why = _loaded(entry, fault or functools.partial(_fault, kind=kind))
        if why:
            unusable.append(Unusable(kind=kind, name=entry.name, package=package, why=why))
        else:
            found[entry.name] = Outside(part, kind=kind, package=package)
    return found, unusable


def packages() -> dict[str, str]:
    """Return the versions of the packages that offer parts, for the record."""
    entries = (entry for found in _entry_points().values() for entry in found)
    return {entry.dist.name: entry.dist.version for entry in entries if entry.dist is not None}


def _loaded(entry: metadata.EntryPoint, fault: Callable[[Any], str]) -> tuple[Any, str]:
    """Return what an entry point names, and why it cannot be used; empty where it can."""
    try:
        part = entry.load()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - importing somebody else's code may raise anything
        return None, f"{type(error).__name__}: {error}".partition("\n")[0]
    if not _NAME.fullmatch(entry.name) or getattr(part, "NAME", None) != entry.name:
        return None, f"{entry.value} has no NAME = {entry.name!r} (small letters, digits and '-')"
    why = fault(part)
    return part, f"{entry.value}{why}" if why else ""


def _fault(part: Any, *, kind: str) -> str:
    """Return what a module lacks to be a part of this kind, after its name; empty for nothing."""
    config = getattr(part, "Config", None)
    if not isinstance(config, type) or not issubclass(config, Model):
        return " has no Config, a model of orchestrator.core.fields.Model"
    if kind == "workload" and {"hosts", "env", "env_from"} - config.model_fields.keys():
        return ": Config is no WorkloadConfig of workloads.common.placement"
    missing = [name for name in members(kind) if not callable(getattr(part, name, None))]
    ways = protocols.WAYS_TO_COLLECT if kind == "collector" else ()
    if ways and not any(callable(getattr(part, name, None)) for name in ways):
        missing.append("one of " + ", ".join(ways))
    return f" lacks {', '.join(missing)} (orchestrator/parts/protocols.py)" if missing else ""


def members(kind: str) -> list[str]:
    """Return the functions that a part of this kind has."""
    bases = [base for base in _PROTOCOLS[kind].__mro__ if base.__module__ == protocols.__name__]
    return sorted(
        {name for base in bases for name, value in vars(base).items() if not name.startswith("_") and callable(value)}
    )


@functools.cache
def _entry_points() -> Mapping[str, tuple[metadata.EntryPoint, ...]]:
    """Those of each kind, in an order of their own; the metadata of all packages are read once."""
    every = metadata.entry_points()
    return {
        kind: tuple(sorted(every.select(group=group), key=lambda entry: (entry.name, entry.value)))
        for kind, group in GROUPS.items()
    }


def _package(entry: metadata.EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "?"
