"""The contract of gates as checks, and artificial windows for their tests."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from orchestrator.experiment.experiment import validity_model
from orchestrator.parts.rows import Row
from orchestrator.store.manifests.records import Gate, Manifest, Window
from orchestrator.store.tabular import tables
from orchestrator.testing.case import TOPOLOGIES
from orchestrator.testing.contract import Check
from orchestrator.validity import registry
from orchestrator.validity.declaration import GateModule, Limit
from orchestrator.validity.window import PartlyKnown


def _manifest() -> Manifest:
    return Manifest(run="made", experiment="made", outcome="completed", began_ns=0, topology=TOPOLOGIES["inventory"])


def _record() -> Window:
    return Window(name="w1", start_ns=0, end_ns=60_000_000_000, valid=False, reasons=())


@dataclass(frozen=True, kw_only=True)
class MadeWindow(PartlyKnown):
    """A window made by a test, with the values that its gate asks for; all else is empty.

    `rows` are those of the run's tables, by name; `grown` is by how much counters grew, by node, port and name.
    """

    manifest: Manifest = field(default_factory=_manifest)
    record: Window = field(default_factory=_record)
    rows: Mapping[str, Sequence[Row]] = field(default_factory=dict)
    grown: Mapping[tuple[str, str, str], float] = field(default_factory=dict)

    def table(self, name: str) -> Any:
        """Return the rows of a table (pyarrow); a column that a row leaves out is null."""
        import pyarrow as pa

        return pa.Table.from_pylist(list(self.rows.get(name, ())), schema=tables.schema(name))

    def growth(self, node: str, counter: str, *, port: str = "") -> float:
        """Return by how much a counter grew; NaN where the test does not say."""
        return self.grown.get((node, port, counter), math.nan)


@dataclass(frozen=True, slots=True, kw_only=True)
class GateCase:
    """A module of gates, by its NAME, with windows that pass its gates, and windows that each fail one."""

    name: str
    passes: tuple[MadeWindow, ...]
    fails: tuple[MadeWindow, ...]

    @property
    def module(self) -> GateModule:
        """The module of gates with this NAME; AssertionError where there is none."""
        found = [module for module in registry.modules() if self.name == module.NAME]
        if not found:
            raise AssertionError(f"no gates of this name are found: {', '.join(map(str, registry.unusable()))}")
        return found[0]

    def judged(self, window: MadeWindow) -> list[Gate]:
        """Return the verdicts of the module's gates on a window."""
        return list(self.module.judge(window))


def gate_checks(case: GateCase) -> list[Check]:
    """Return every check that a module of gates has to pass."""
    held = (_it_is_described, _its_limits_are_keys, _an_empty_window_is_judged, _windows_pass, _windows_fail)
    return [Check(check.__name__.strip("_").replace("_", "-"), partial(_alone, check, case)) for check in held]


def _alone(check: Any, case: GateCase, _: Path) -> None:
    check(case)


def _expect(held: object, what: str) -> None:
    if not held:
        raise AssertionError(what)


def _it_is_described(case: GateCase) -> None:
    for spec in case.module.GATES:
        _expect(re.fullmatch(r"[a-z][a-z0-9-]*", spec.name), f"{spec.name}: accepted: small letters, digits and '-'")
        _expect(spec.passes and not spec.passes.endswith("."), f"{spec.name}: `passes` completes a sentence")
        _expect(spec.remedy, f"{spec.name} does not say what to do")


def _its_limits_are_keys(case: GateCase) -> None:
    for limit in [spec.limit for spec in case.module.GATES if isinstance(spec.limit, Limit)]:
        _expect(re.fullmatch(r"[a-z][a-z0-9_]*", limit.key), f"{limit.key}: accepted: small letters, digits and '_'")
        found = validity_model().model_fields.get(limit.key)
        _expect(found is not None and found.description == limit.help, f"{limit.key} is no key of `validity:`")
        _expect(limit.of({}) == limit.of({limit.key: limit.default}), f"{limit.key}: its default is no limit")


def _an_empty_window_is_judged(case: GateCase) -> None:
    _expect(not [one for one in case.judged(MadeWindow()) if one.required], "a window without anything is failed")


def _windows_pass(case: GateCase) -> None:
    _expect(case.passes, "no window passes")
    for window in case.passes:
        verdicts = case.judged(window)
        _expect(verdicts and all(one.passed for one in verdicts), f"a window that passes: {verdicts}")
        _expect(registry.valid(verdicts), f"a window that passes is not valid: {verdicts}")


def _windows_fail(case: GateCase) -> None:
    names = {spec.name for spec in case.module.GATES}
    failed = [one for window in case.fails for one in case.judged(window) if one.passed is False]
    _expect(failed, "no window fails")
    for one in failed:
        _expect(one.name in names, f"{one.name} is not declared in GATES")
        _expect(one.message and not one.message.endswith("."), "a message says what was measured, without a full stop")
