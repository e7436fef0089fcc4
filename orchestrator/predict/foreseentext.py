"""Print simulated windows: iteration times with their intervals, the use of links, and what runs measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.core.screen import layout
from orchestrator.core.units import rate_text
from orchestrator.predict import foreseeing
from orchestrator.predict.foreseeing import ForeseenJob, ForeseenWindow, Spread
from orchestrator.predict.measured_windows import MeasuredWindow

NOTHING = "-"
LEARNED = "learned from it"  # in place of an error
MOST_LINKS = 6  # of which the use is printed, the busiest first


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeseenSetting:
    """A setting's windows by simulation, and by window and job what was measured of it.

    The simulation learned from `taught` runs: it is not held against these.
    """

    label: str
    windows: tuple[ForeseenWindow, ...]
    measured: Mapping[tuple[str, str], MeasuredWindow]
    taught: frozenset[str] = frozenset()

    def rows(self) -> list[tuple[ForeseenWindow, ForeseenJob, MeasuredWindow | None]]:
        """Return each job of each window, and what runs measured of it, if any did."""
        return [
            (window, job, self.measured.get((window.window, job.job))) for window in self.windows for job in window.jobs
        ]


def congestion(found: Sequence[ForeseenSetting]) -> float:
    """Return the congestion point over settings that differ in a source's load alone (bit/s); NaN where there is none.

    The load is that of the sources whose load differs: others may be on links that nothing shares with them.
    """
    by_window: dict[str, list[ForeseenWindow]] = {}
    for window in (window for one in found for window in one.windows):
        by_window.setdefault(window.window, []).append(window)
    points: list[tuple[float, float]] = []
    for alike in by_window.values():
        differs = [len(set(loads)) > 1 for loads in zip(*(window.loads_bps for window in alike), strict=True)]
        for window in alike if any(differs) else ():
            load_bps = sum(bps for bps, changed in zip(window.loads_bps, differs, strict=True) if changed)
            points.append((load_bps, window.jobs[0].mean.value))
    return foreseeing.congestion_bps(points)


def text(found: Sequence[ForeseenSetting], *, congestion: float | None) -> str:
    """Return all windows of all settings as a table, the use of links of the slowest one, and how they were found."""
    rows = [(one.label, *row, one.taught) for one in found for row in one.rows()]
    head = ["simulated", "mean\nms", "from\nto", "p50\nms", "p99\nms", "from\nto", "computing\nms", "waiting\nms"]
    head += ["busiest\nlink", "its\nuse %", "measured\nmean, p50, p99", "error %"]
    table = layout.table(*layout.saying(head, [_row(*row) for row in rows]))
    _, slowest, *_ = max(rows, key=lambda row: row[2].mean.value)
    parts = [table, _links(slowest), _method(slowest)]
    if congestion is not None:
        parts.append(_congestion(congestion))
    runs = list(dict.fromkeys(run for _, _, _, measured, _ in rows if measured is not None for run in measured.runs))
    if runs:
        doubtful = any(measured is not None and not measured.valid for _, _, _, measured, _ in rows)
        parts.append(f"measured: {', '.join(runs)}{' (not all valid)' if doubtful else ''}")
    return "\n\n".join(parts)


def _row(
    label: str, window: ForeseenWindow, job: ForeseenJob, measured: MeasuredWindow | None, taught: frozenset[str]
) -> list[str]:
    where = [label] if label else []
    where += [window.window] if window.window else []
    where += [job.job] if len(window.jobs) > 1 else []
    where += [" + ".join(window.traffic) or "no cross traffic"]
    beside = [NOTHING, NOTHING]
    if measured is not None:
        values = (measured.mean_s, measured.p50_s, measured.p99_s)
        predicted = (job.mean.value, job.p50.value, job.p99.value)
        errors = (value / true - 1 for value, true in zip(predicted, values, strict=True))
        off = LEARNED if taught & set(measured.runs) else ", ".join(f"{error * 100:+.1f}" for error in errors)
        beside = [", ".join(map(_ms, values)), off]
    return [
        ", ".join(where),
        _ms(job.mean.value),
        _ends(job.mean),
        _ms(job.p50.value),
        _ms(job.p99.value),
        _ends(job.p99),
        _ms(job.compute_s),
        _ms(job.waiting_s),
        window.busiest,
        f"{window.use[window.busiest] * 100:.0f}" if window.busiest else NOTHING,
        *beside,
    ]


def _ends(spread: Spread) -> str:
    return NOTHING if spread.interval is None else " to ".join(map(_ms, spread.interval))


def _links(window: ForeseenWindow) -> str:
    """Return the use of the busiest links of a window."""
    ordered = sorted(window.use.items(), key=lambda one: -one[1])[:MOST_LINKS]
    rows = [[name, f"{use * 100:.1f}"] for name, use in ordered]
    return layout.table(("link of the slowest window", "use %"), rows)


def _method(window: ForeseenWindow) -> str:
    grain = {
        "packets": "packet by packet: token-bucket queues, CUBIC, selective acknowledgements, time-outs",
        "flows": "flow by flow: max-min shares, without queues, losses and time-outs",
    }[window.grain]
    if window.draws == 1:
        return f"simulated {grain}; one draw tells no interval"
    return (
        f"simulated {grain}; from and to: 90 % by {window.draws} draws of costs and of cross traffic, "
        f"and {foreseeing.MODEL_ERROR:.1%} at each end for what the model itself gets wrong"
    )


def _congestion(bps: float) -> str:
    share = f"{(foreseeing.CONGESTED - 1) * 100:.0f} %"
    if math.isnan(bps):
        return f"congestion point: none of these loads makes an iteration {share} longer than the lowest one does"
    rounded = rate_text(float(f"{bps:.3g}"))  # of three digits, as the loads themselves are far apart
    return f"congestion point: from {rounded} on an iteration takes {share} longer than at the lowest load"


def data(found: Sequence[ForeseenSetting], *, congestion: float | None) -> dict[str, Any]:
    """Return the same as JSON data, times in seconds."""
    windows = []
    for one in found:
        for window in foreseeing.data(one.windows):
            for job in window["jobs"]:
                measured = one.measured.get((window["window"], job["job"]))
                job["measured"] = (
                    None
                    if measured is None
                    else {
                        "runs": list(measured.runs),
                        "salts": list(measured.salts),
                        "mean_s": measured.mean_s,
                        "p50_s": measured.p50_s,
                        "p99_s": measured.p99_s,
                        "valid": measured.valid,
                        "learned_from": bool(one.taught & set(measured.runs)),
                    }
                )
            windows.append({"setting": one.label, **window})
    return {"windows": windows, "congestion_bps": None if congestion is None or math.isnan(congestion) else congestion}


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.1f}"
