"""Gates `losses`, `pauses` and `switch`: RDMA and switches lost no packets, and the network paused no rail."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Literal

from orchestrator.parts.protocols import end_name
from orchestrator.store.manifests.records import Gate
from orchestrator.validity.declaration import GateSpec, Limit, verdict
from orchestrator.validity.window import MeasuredWindow

NAME = "congestion"
ORDER = 130
LOSSES = ("out_of_sequence", "retransmits", "timeouts", "discards")
PAUSES = ("pfc_rx", "pfc_tx")
SWITCH_LOSSES = ("in_discards", "out_discards", "in_errors", "out_errors")
CONSEQUENCE = Limit(
    key="congestion",
    kind=Literal["warn", "invalid"],
    default="warn",
    help="What becomes of a window in which RDMA or a switch lost packets, or the network paused a host: a remark, or "
    "it is invalid.",
)
GATES = (
    GateSpec(
        name="losses",
        passes="RDMA of each rail lost no packets",
        limit=CONSEQUENCE,
        required=False,
        remedy="Look at the switch's queues and at ECN. `validity: {congestion: invalid}` makes such a window invalid "
        "([how](rails-and-rdma.md)).",
    ),
    GateSpec(
        name="pauses",
        passes="the network paused no rail",
        limit=CONSEQUENCE,
        required=False,
        remedy="Look for the slow receiver that priority flow control protects. `validity: {congestion: invalid}` "
        "makes such a window invalid.",
    ),
    GateSpec(
        name="switch",
        passes="the ports of a switch that the collector `snmp` samples discarded nothing and had no errors",
        limit=CONSEQUENCE,
        required=False,
        remedy="The message has the ports, and the table `switch_ports` the counts: look at the queues there. "
        "`validity: {congestion: invalid}` makes such a window invalid.",
    ),
)


def judge(window: MeasuredWindow) -> Iterator[Gate]:
    """Give two verdicts for each rail, then one for each switch.

    TCP finds its rate by losses, RoCE is built on having none: its window counts only where nothing was lost or paused,
    or is remarked upon where that is not required.
    """
    required = CONSEQUENCE.of(window.manifest.validity) == "invalid"
    yield from _rails(window, required=required)
    yield from _switches(window, required=required)


def _rails(window: MeasuredWindow, *, required: bool) -> Iterator[Gate]:
    for row in window.congestion:
        name = end_name(row.host, row.rail)
        for kind, figures in (("losses", LOSSES), ("pauses", PAUSES)):
            counted = {figure: row.figures[figure] for figure in figures if not math.isnan(row.figures[figure])}
            lost = [figure.replace("_", " ") for figure in figures if figure in row.lost]
            if not counted and not lost:
                continue
            total = math.fsum(counted.values())
            counts = ", ".join(f"{figure.replace('_', ' ')} {count:.0f}" for figure, count in counted.items() if count)
            text = f"{name} ({row.device}): {counts}" if counts else f"{name} ({row.device}): no {kind}"
            text += f"; not known: {', '.join(lost)}" if lost else ""
            passed = None if lost and total == 0 else total == 0
            yield verdict(kind, passed, text, measured=total, limit=0, required=required)


def _switches(window: MeasuredWindow, *, required: bool) -> Iterator[Gate]:
    """Judge whether the ports of each switch discarded nothing and found nothing damaged."""
    for switch, rows in groupby(sorted(window.switch_ports, key=lambda one: one.switch), key=lambda one: one.switch):
        counts = {row.port: {name: row.figures[name] for name in SWITCH_LOSSES} for row in rows}
        known = {port: counted for port, counted in counts.items() if not all(map(math.isnan, counted.values()))}
        if not known:
            text = f"{switch}: not known what its ports lost"
            yield verdict("switch", None, text, measured=math.nan, limit=0, required=required)
            continue
        losses = [f"{port}: {lost}" for port, counted in known.items() if (lost := _listed(counted))]
        total = math.fsum(count for counted in known.values() for count in counted.values() if count > 0)
        fine = f"{len(known)} port{'s' if len(known) > 1 else ''} lost nothing"
        text = f"{switch}: {'; '.join(losses) or fine}"
        yield verdict("switch", total == 0, text, measured=total, limit=0, required=required)


def _listed(counted: Mapping[str, float]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {count:.0f}" for name, count in counted.items() if count > 0)
