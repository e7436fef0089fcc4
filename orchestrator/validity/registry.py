"""Find the gates, list their limits and help, and judge a measured window by all of them.

Every module of `orchestrator.validity.gates` is found, and every one that another package offers by an entry point:

    [project.entry-points."orch.gates"]
    queue-depth = "mylab_parts.queue_depth"

`declaration.GateModule` says what such a module has.
"""

from __future__ import annotations

import importlib
import math
import pkgutil
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, cast

from orchestrator.core.errors import OrchError
from orchestrator.parts import outside
from orchestrator.parts.outside import Outside, Unusable
from orchestrator.store.manifests.records import Gate
from orchestrator.validity import gates
from orchestrator.validity.declaration import GateModule, GateSpec, Limit, verdict
from orchestrator.validity.window import MeasuredWindow


@cache
def modules() -> tuple[GateModule, ...]:
    """Return the modules of gates in the order in which they are judged."""
    found = [*_own().values(), *cast("dict[str, GateModule]", _offered()[0]).values()]
    return tuple(sorted(found, key=lambda module: (module.ORDER, module.NAME)))


def specs() -> list[GateSpec]:
    """Return the declarations of all gates, in the same order."""
    return [spec for module in modules() for spec in module.GATES]


def limits() -> dict[str, Limit]:
    """Return the limits that an experiment may move, by key of `validity:`."""
    return {spec.limit.key: spec.limit for spec in specs() if isinstance(spec.limit, Limit)}


def counters() -> frozenset[str]:
    """Return the names of the counters that gates ask for by `MeasuredWindow.growth`."""
    return frozenset(name for module in modules() for name in getattr(module, "COUNTERS", ()))


def unusable() -> list[Unusable]:
    """Return the gates that other packages offer and that cannot be used."""
    return _offered()[1]


def judge(window: MeasuredWindow) -> list[Gate]:
    """Return the verdicts of every gate: first those that did not pass, then those that could not be judged."""
    verdicts = [one for module in modules() for one in _judged(module, window)]
    order = {False: 0, None: 1, True: 2}
    return sorted(verdicts, key=lambda one: (order[one.passed], not one.required))


def valid(verdicts: Iterable[Gate]) -> bool:
    """Return whether every required gate passed; a gate that could not be judged has not."""
    return not reasons(verdicts)


def reasons(verdicts: Iterable[Gate]) -> list[str]:
    """Return why a window is invalid."""
    return [one.message for one in verdicts if one.required and not one.passed]


@cache
def _own() -> Mapping[str, GateModule]:
    """Return this project's modules of gates by NAME."""
    names = [entry.name for entry in pkgutil.iter_modules(gates.__path__)]
    found = [cast("GateModule", importlib.import_module(f"{gates.__name__}.{name}")) for name in names]
    return {module.NAME: module for module in found}


@cache
def _offered() -> tuple[dict[str, Outside], list[Unusable]]:
    """Return the modules of gates of other packages by NAME, and those that cannot be used."""
    taken = {spec.name for module in _own().values() for spec in module.GATES}
    keys = {spec.limit.key for module in _own().values() for spec in module.GATES if isinstance(spec.limit, Limit)}

    def fault(module: Any) -> str:
        declared = getattr(module, "GATES", None)
        if not isinstance(declared, tuple) or not all(isinstance(spec, GateSpec) for spec in declared) or not declared:
            return " has no GATES, a tuple of orchestrator.validity.declaration.GateSpec"
        if not isinstance(getattr(module, "ORDER", None), int) or not callable(getattr(module, "judge", None)):
            return " lacks ORDER or judge (orchestrator/validity/declaration.py)"
        mine = {spec.limit.key for spec in declared if isinstance(spec.limit, Limit)}
        for what, clash in (("gate", taken & {spec.name for spec in declared}), ("key of `validity:`", keys & mine)):
            if clash:
                return f": the {what} {min(clash)} is another gate's"
        taken.update(spec.name for spec in declared)
        keys.update(mine)
        return ""

    return outside.offered("gate", _own(), fault=fault)


def _judged(module: GateModule, window: MeasuredWindow) -> list[Gate]:
    """Return the verdicts of a module; where one of another package raises, its gates could not be judged."""
    if not isinstance(module, Outside):
        return list(module.judge(window))
    try:
        return list(module.module.judge(window))
    except Exception as error:  # noqa: BLE001 - somebody else's code: whatever it raises is told as theirs
        why = error.message if isinstance(error, OrchError) else f"{type(error).__name__}: {error}".partition("\n")[0]
        text = f"the gate {module.module.NAME} of the package {module.package} failed: {why}"
        return [
            verdict(spec.name, None, text, measured=math.nan, limit=None, required=spec.required)
            for spec in module.module.GATES
        ]
