"""Compute completion times of cross-traffic flows by size (FCT), and their slowdown against an empty path.

A flow takes from just before it connects until its receiver has acknowledged all of it. Its slowdown is that over the
time in which its layer-2 bytes pass the slowest link at full rate; the time of propagation is not counted, so that
small flows have a slowdown above 1 on an empty path too (as in pFabric, Alizadeh et al., SIGCOMM 2013, but for that).
Sizes and rates shrink alike by the scale, and durations stay.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cross_traffic.agents.flow_drawing import Framing
from orchestrator.analysis.compare.selection import Chosen, natural
from orchestrator.analysis.stats.levels import Level, level
from orchestrator.analysis.stats.statistics import Estimate, summarise
from orchestrator.analysis.traffic.sharedlink import capacity_bps
from orchestrator.analysis.windows.generated_flows import wire_bytes
from orchestrator.core.errors import ConfigError
from orchestrator.core.where import Condition
from orchestrator.report.figure import windows
from orchestrator.report.figure.windows import FigureWindow
from orchestrator.store.tabular import tables

Floats = npt.NDArray[np.float64]

EDGES = tuple(10 ** (half / 2) for half in range(4, 21))  # bytes: two bins a decade, from 100 B to 10 GB
FEWEST = 8  # flows of a size in all runs, below which they are left out
FEWEST_P99 = 100  # flows of a size in a run, below which its 99th percentile is its maximum


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeBin:
    """Flows of a range of sizes (bytes at full size): median and 99th percentile, seconds or slowdown.

    Levels are over runs; of a single run the interval is within it. That of the 99th percentile is NaN where no run has
    FEWEST_P99 flows.
    """

    low_bytes: float
    high_bytes: float
    flows: int
    p50: Level
    p99: Level

    @property
    def middle_bytes(self) -> float:
        """Where the bin is drawn on a logarithmic axis."""
        return math.sqrt(self.low_bytes * self.high_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeCurve:
    """The bins of flows of windows with the same value of the axis `series`."""

    label: str
    bins: tuple[SizeBin, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowTimes:
    """All flows that were planned in valid windows and succeeded; `lost` counts those that did not."""

    slowdown: bool
    series: str
    curves: tuple[SizeCurve, ...]
    lost: int
    common: windows.SharedSettings


@dataclass(frozen=True, slots=True)
class _Flows:
    """Flows of a run, window by window in order of their start: bytes at full size, and seconds or slowdowns."""

    size: Floats
    value: Floats
    lost: int


def flow_times(chosen: Chosen, *, slowdown: bool, series: str = "", conditions: Sequence[Condition] = ()) -> FlowTimes:
    """Return the figure of these measurements; ConfigError where they cannot be in one, or too few flows were sent."""
    seen = windows.figure_windows(chosen, conditions)
    by = windows.axis(seen, series) if series else ""
    windows.refuse_mixed(seen, filter(None, (by,)))
    curves, lost = [], 0
    for label in sorted({one.value(by) for one in seen}, key=natural) if by else [""]:
        runs = _runs([one for one in seen if not by or one.value(by) == label], slowdown=slowdown)
        bins = (_bin(runs, low, high) for low, high in itertools.pairwise(EDGES))
        curves.append(SizeCurve(label=label, bins=tuple(one for one in bins if one is not None)))
        lost += sum(run.lost for run in runs)
    if not any(curve.bins for curve in curves):
        raise ConfigError(
            f"{chosen.name}: fewer than {FEWEST} flows of any planned size in its valid windows; "
            "accepted: runs with websearch, replay or another source of single flows"
        )
    return FlowTimes(
        slowdown=slowdown, series=by, curves=tuple(curves), lost=lost, common=windows.shared_settings(seen, chosen)
    )


def _runs(seen: Sequence[FigureWindow], *, slowdown: bool) -> list[_Flows]:
    of_run: dict[Path, dict[str, FigureWindow]] = defaultdict(dict)
    for one in seen:
        of_run[one.entry.path][one.window.name] = one  # of several jobs in a window one: its traffic is the same
    found = []
    for mine in of_run.values():
        parts = [_flows(one, slowdown=slowdown) for one in mine.values()]
        found.append(
            _Flows(
                np.concatenate([part.size for part in parts]),
                np.concatenate([part.value for part in parts]),
                sum(part.lost for part in parts),
            )
        )
    return found


def _flows(one: FigureWindow, *, slowdown: bool) -> _Flows:
    import pyarrow.compute as pc

    begin, end = one.window.span_ns
    planned = pc.field("planned_start_ns")
    mine = (pc.field("window_name") == one.window.name) & pc.field("planned_bytes").is_valid()
    rows = tables.read(one.entry.path / "tables", "flows", where=mine & (planned >= begin) & (planned < end))
    done = pc.and_(pc.equal(rows["error"], ""), pc.is_valid(rows["end_ns"]))
    ended = rows.filter(done).sort_by("start_ns")
    start, acknowledged, size = (
        ended[name].to_numpy(zero_copy_only=False).astype(np.int64) for name in ("start_ns", "end_ns", "planned_bytes")
    )
    seconds = (acknowledged - start) / 1e9
    value = seconds / _alone_s(one, size) if slowdown else seconds
    return _Flows((size * one.scale).astype(np.float64), value, rows.num_rows - ended.num_rows)


def _alone_s(one: FigureWindow, size: npt.NDArray[np.int64]) -> Floats:
    """Return how long the layer-2 bytes of flows take on the slowest link of the testbed, in seconds."""
    manifest = one.entry.manifest
    rate = min(capacity_bps(manifest.topology), one.least_rate_bps)
    return wire_bytes(size, Framing(manifest.topology.mtu, manifest.topology.ip, 0)) * 8 * one.scale / rate


def _bin(runs: Sequence[_Flows], low: float, high: float) -> SizeBin | None:
    values = [run.value[(run.size >= low) & (run.size < high)] for run in runs]
    count = sum(map(len, values))
    if count < FEWEST:
        return None
    found = [(len(mine), summarise(mine)) for mine in values if len(mine)]
    return SizeBin(
        low_bytes=low,
        high_bytes=high,
        flows=count,
        p50=_level([summary.p50 for _, summary in found]),
        p99=_level([summary.p99 for flows, summary in found if flows >= FEWEST_P99]),
    )


def _level(runs: Sequence[Estimate]) -> Level:
    found = level(runs)
    return replace(found, estimate=runs[0]) if len(runs) == 1 else found
