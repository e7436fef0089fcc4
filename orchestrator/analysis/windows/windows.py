"""Measure and judge the windows of a run, from its tables and manifest: loads, training figures, and verdicts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType

from orchestrator.analysis.causes import naming
from orchestrator.analysis.causes.carried import carried
from orchestrator.analysis.causes.explanation import Explanation
from orchestrator.analysis.windows.measured_window import MeasuredRun, MeasuredWindow
from orchestrator.parts.rows import TABLES, Columns, Row
from orchestrator.store.manifests.records import Manifest, Window
from orchestrator.store.manifests.summaries import Load
from orchestrator.validity import registry
from orchestrator.validity.window import ArrivedLoad

NOTHING: Mapping[tuple[str, str], str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The measured windows of a run, as its manifest has them and as its tables do."""

    windows: tuple[Window, ...]
    tables: Mapping[str, Columns]


def measure(
    folder: Path, manifest: Manifest, *, problems: Sequence[str] = (), lost: Mapping[tuple[str, str], str] = NOTHING
) -> Outcome:
    """Judge every window of a run whose other tables lie in `folder`, by the limits that its manifest records.

    What the manifest says of a window's verdict is not looked at. `problems` are those of reading captures, and `lost`
    says why a collector (node, launch) brought nothing; both count against every window.
    """
    run = MeasuredRun(folder, manifest, unreadable_captures=tuple(problems), silent_collectors=lost)
    judged: list[Window] = []
    rows: dict[str, list[Row]] = {}
    for record in manifest.windows:
        measured = MeasuredWindow(run, record)
        judged.append(_judged(measured))
        for table, row in _rows(measured, judged[-1]):
            rows.setdefault(table, []).append({"window_name": record.name, **row})
    return Outcome(
        windows=tuple(judged),
        tables={
            name: {column: [row[column] for row in rows.get(name, ())] for column in TABLES[name]}
            for name in TABLES_OF_WINDOWS
        },
    )


# Tables that say what windows amount to; a row is of one window.
TABLES_OF_WINDOWS = (
    "windows",
    "loads",
    "training",
    "variation",
    "processors",
    "generated",
    "rails",
    "congestion",
    "switch_ports",
    "carried",
    "causes",
    "parts",
    "fabric_links",
    "collisions",
)


def _judged(measured: MeasuredWindow) -> Window:
    """Return the window's record with its figures and verdicts."""
    verdicts = registry.judge(measured)
    return replace(
        measured.record,
        loads=_loads(measured.record, measured.loads),
        training=measured.training,
        variation=measured.variation,
        processors=measured.processor_shares,
        gates=tuple(verdicts),
        valid=registry.valid(verdicts),
        reasons=tuple(registry.reasons(verdicts)),
    )


def _loads(window: Window, arrived: Sequence[ArrivedLoad]) -> tuple[Load, ...]:
    """Return the loads that a window asks for with what arrived of each; NaN of one that was seen with others."""
    achieved = {(load.source, load.src, load.dst, load.rail): load.achieved_bps for load in arrived}
    keys = [(load.source, load.src, load.dst, load.rail) for load in window.loads]
    return tuple(
        replace(load, achieved_bps=achieved.get(key, math.nan)) for key, load in zip(keys, window.loads, strict=True)
    )


def _rows(measured: MeasuredWindow, judged: Window) -> Iterator[tuple[str, Row]]:
    """Give the rows of a window by table."""
    yield (
        "windows",
        {
            "start_ns": judged.start_ns,
            "end_ns": judged.end_ns,
            "valid": judged.valid,
            "reasons": "\n".join(judged.reasons),
        },
    )
    for name, records in (
        ("loads", judged.loads),
        ("training", judged.training),
        ("variation", judged.variation),
        ("processors", judged.processors),
        ("generated", measured.generated),
        ("rails", measured.rails),
        ("fabric_links", measured.fabric_links),
        ("collisions", measured.collisions),
    ):
        for record in records:
            yield name, asdict(record)
    for rail in measured.congestion:
        yield "congestion", {"host": rail.host, "rail": rail.rail, "device": rail.device, **rail.figures}
    for port in measured.switch_ports:
        yield "switch_ports", {"switch": port.switch, "port": port.port, **port.figures}
    captured, packets = measured.table("capture_flows"), measured.table("flow_packets")
    for row in carried(measured.manifest, judged, spans=measured.table("spans"), captured=captured, packets=packets):
        yield "carried", row
    for explained in naming.of_window(measured.run, judged):
        yield from _named(explained)


def _named(explained: Explanation) -> Iterator[tuple[str, Row]]:
    """Give the rows of the causes and parts of a job's iterations by table."""
    for cause in explained.findings:
        yield (
            "causes",
            {
                "job": explained.job,
                "cause": cause.cause,
                "place": cause.place,
                "hosts": ",".join(cause.hosts),
                "cost_share": cause.share,
                "low_share": cause.low,
                "high_share": cause.high,
                "cost_s": cause.seconds,
                "evidence": "\n".join(cause.evidence),
            },
        )
    for part in explained.parts:
        yield "parts", {"job": explained.job, "part": part.name, "part_s": part.seconds, "part_share": part.share}
