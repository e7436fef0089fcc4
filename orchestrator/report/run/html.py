"""Builds the report: one self-contained HTML page about one or more sealed runs, and its figures beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from orchestrator.analysis.stats.statistics import is_maximum
from orchestrator.analysis.windows.ranks.variation import ALL_RANKS
from orchestrator.core.errors import StoreError
from orchestrator.core.units import span_text
from orchestrator.parts.rows import Row
from orchestrator.report import page
from orchestrator.report.quantities import percent, rate, share, size
from orchestrator.report.run import drawn_from, origin, over_runs, timeline
from orchestrator.report.run.collectives import measured
from orchestrator.report.run.figures import MOST_VIEWED, draw_all
from orchestrator.report.runs import Run, load
from orchestrator.report.traffic import trafficview
from orchestrator.store.manifests.window_records import Window


def render(runs: Sequence[Path], output: Path) -> Path:
    """Write the page `output`, and its figures as SVG and PDF into `<output's stem>-figures` beside it.

    The page needs nothing else to be shown. StoreError when a path is no run or `output` cannot be written.
    """
    if not runs:
        raise StoreError("a report needs at least one run", hint="orch ls")
    read = load(runs)
    return page.write("report.html", output, lambda folder: {
        "title": _title(read),
        "runs": [_about(run) for run in read],
        "summary": [row for run in read for row in _summary(run)],
        "over_runs": over_runs.rows(over_runs.curves(read)),
        "loads": [row for run in read for row in _loads(run)],
        "schedules": [line for run in read for line in drawn_from.told(run)],
        "variation": [row for run in read for row in _variation(run)],
        "captures": [row for run in read for row in _captures(run)],
        "collectives": [row for run in read for row in _collectives(run)],
        "several": len(read) > 1,
        "several_jobs": any(len(run.manifest.jobs) > 1 for run in read),
        "scales": sorted({run.scale for run in read}),
        "emulated": any("emulated" in (job.compute or "").lower() for run in read for job in run.manifest.jobs),
        "pictures": draw_all(read, folder),
        "traffic": [text for run in read if (text := _traffic(run, several=len(read) > 1))],
        "timeline": _timeline(read, folder),
        "viewed": MOST_VIEWED if len(read) > MOST_VIEWED else 0,
    })  # fmt: skip


def _title(runs: Sequence[Run]) -> str:
    names = list(dict.fromkeys(run.manifest.experiment for run in runs))
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _about(run: Run) -> page.Values:
    """Verdict, gates and provenance of a run."""
    manifest = run.manifest
    state = "valid" if manifest.valid else "invalid"
    if manifest.outcome != "completed":
        state = manifest.outcome
    reasons = list(manifest.reasons)
    if manifest.error:
        reasons.insert(0, f"at stage {manifest.stage or '?'}: {manifest.error}")
    if not reasons:
        reasons = [f"{window.name}: {why}" for window in run.windows for why in window.reasons]
    gates = [{"window": window.name, **asdict(gate)} for window in run.windows for gate in window.gates]
    return {
        "id": run.id,
        "name": run.name,
        "state": state,
        "reasons": reasons,
        "gates": gates,
        "processors": [row for window in run.windows for row in _processors(window)],
        "doubts": [f"{gate['window']}: {gate['message']}" for gate in gates if gate["passed"] is None
                   and gate["required"]],
        "failed": [f"{launch.name} on {launch.node}: {launch.failed}" for launch in manifest.launches if launch.failed],
        "notes": list(manifest.notes),
        "provenance": origin.provenance(run),
        "nodes": origin.nodes(run),
    }  # fmt: skip


def _processors(window: Window) -> list[dict[str, str]]:
    """How processors served each node in a window; shares in per cent, a dash for what was not counted."""
    return [
        {
            "window": window.name,
            "host": row.host,
            "count": "-" if row.count is None else f"{row.count:.0f}",
            **{
                key.removesuffix("_share"): "-" if value is None else f"{value:.1%}"
                for key, value in asdict(row).items()
                if key.endswith("_share")
            },
        }
        for row in window.processors
    ]


def _summary(run: Run) -> list[page.Values]:
    """A row a window and job."""
    valid = {window.name: window.valid for window in run.windows}
    loads = run.rows("loads")
    return [
        {
            "run": run.name,
            "window": row["window_name"],
            "job": row["job"],
            "valid": valid.get(row["window_name"]),
            "ranks": row["ranks"],
            "iterations": row["iterations"],
            "effective": _effective(row["effective_iterations"]),
            "left_out": row["left_out"],
            "drift": _drift(row),
            "mean": _estimate(row, "mean"),
            "p50": _estimate(row, "p50"),
            "p99": _estimate(row, "p99"),
            "maximum": is_maximum(row["iterations"], 0.99),
            "load": _total_load([load for load in loads if load["window_name"] == row["window_name"]], run.scale),
            "sent": size(row["sent_bytes"] * run.scale),
            "sent_raw": size(row["sent_bytes"]) if run.scale != 1 else "",
            "theory": size(row["theory_bytes"] * run.scale),
            "ratio": percent(row["sent_bytes"] / row["theory_bytes"] - 1) if row["theory_bytes"] else "",
        }
        for row in run.rows("training")
    ]


def _effective(size: float | None) -> str:
    return "unknown" if size is None or math.isnan(size) else f"{size:.0f}"


def _drift(row: Row) -> str:
    """The trend of the iteration time over the window; runs that were sealed before it was measured have none."""
    share, low, high = (row[key] for key in ("drift", "drift_low", "drift_high"))
    return "unknown" if share is None or math.isnan(share) else f"{percent(share)} ({percent(low)} to {percent(high)})"


def _total_load(rows: Sequence[Row], scale: int) -> str:
    if not rows:
        return "none"
    requested, achieved = (sum(row[key] for row in rows) * scale for key in ("requested_bps", "achieved_bps"))
    pairs = "" if len(rows) == 1 else f" ({len(rows)} pairs together)"
    return f"{rate(achieved) or 'not measured'} of {rate(requested)}{pairs}"


def _loads(run: Run) -> list[page.Values]:
    return [
        {
            "run": run.name,
            "window": row["window_name"],
            "source": row["source"],
            "pair": f"{row['src']} → {row['dst']}",
            "requested": rate(row["requested_bps"] * run.scale),
            "achieved": rate(row["achieved_bps"] * run.scale) or "not measured",
            "requested_raw": rate(row["requested_bps"]) if run.scale != 1 else "",
            "achieved_raw": rate(row["achieved_bps"]) if run.scale != 1 else "",
            "off": percent(row["achieved_bps"] / row["requested_bps"] - 1) if row["requested_bps"] else "",
        }
        for row in run.rows("loads")
    ]


def _variation(run: Run) -> list[page.Values]:
    return [
        {
            "run": run.name,
            "window": row["window_name"],
            "job": row["job"],
            "rank": "all" if row["rank"] == ALL_RANKS else row["rank"],
            "times": [f"{row[key] * 1e3:.4g}" for key in ("mean_s", "p50_s", "p95_s", "p99_s", "max_s")],
            "shares": [share(row[key]) for key in ("straggler_share", "overlapped", "efficiency")],
            "cv": share(row["cv"]),
            "orders": row["orders"] or "",
        }
        for row in run.rows("variation")
        if row["iterations"]
    ]


def _collectives(run: Run) -> list[page.Values]:
    return [
        {
            "run": run.name,
            "window": one.window,
            "operation": one.operation,
            "size": size(one.bytes),
            "count": one.count,
            "time": span_text(one.seconds),
            "algorithm": rate(one.algorithm_bps),
            "bus": rate(one.bus_bps),
            "utilization": f"{one.utilization:.1%}",
        }
        for one in measured(run)
    ]


def _timeline(runs: Sequence[Run], folder: Path) -> str:
    """The file of a single run's timeline; of several runs `orch timeline` writes each."""
    return timeline.write(runs[0], folder / "timeline.json.gz").name if len(runs) == 1 else ""


def _traffic(run: Run, *, several: bool) -> str:
    """Tables of the captured traffic; empty when nothing was captured or measured."""
    views = list(run.views.items())
    return trafficview.section(views, scale=run.scale, title=run.name if several else "") if views else ""


def _captures(run: Run) -> list[page.Values]:
    return [
        {
            "run": run.name,
            "port": f"{row['node']}:{row['port']}",
            "captured": f"{row['captured']:,}",
            "dropped": f"{row['dropped']:,}",
            "lost": row["dropped"] > 0,
            "share": f"{row['dropped'] / max(1, row['captured'] + row['dropped']):.3%}",
            "files": row["files"],
            "size": size(row["bytes"]),
        }
        for row in run.rows("captures")
    ]


def _estimate(row: Row, key: str) -> dict[str, str]:
    """Value and interval in milliseconds, to the digits that the interval bears out."""
    value, low, high = (row[f"{key}{part}_s"] * 1e3 for part in ("", "_low", "_high"))
    if math.isnan(value):
        return {"value": "none", "interval": ""}
    width = high - low
    digits = 1 if math.isnan(width) or width <= 0 else max(0, min(3, 1 - math.floor(math.log10(width))))
    interval = "unknown" if math.isnan(width) else f"{low:.{digits}f} to {high:.{digits}f}"
    return {"value": f"{value:.{digits}f}", "interval": interval}
