"""Runs in words and as summaries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TypedDict

from orchestrator.core.opendata import JsonObject
from orchestrator.core.screen import layout
from orchestrator.core.units import rate_text
from orchestrator.store.manifests.records import Summary
from orchestrator.store.manifests.window_records import WindowSummary
from orchestrator.store.rundir import Listed, began_text


def rate_or_dash(value: float | None) -> str:
    """A rate in bit/s to four digits; a dash for one that is not known."""
    return "-" if value is None or math.isnan(value) else rate_text(float(f"{value:.4g}"))


def ms(value: float | None) -> str:
    """Seconds in milliseconds, without the unit, for a column that has it; a dash for what is not known."""
    return ms_or_dash(value).removesuffix(" ms")


def ms_or_dash(value: float | None) -> str:
    """Seconds in milliseconds; a dash for what is not known."""
    return "-" if value is None or math.isnan(value) else f"{value * 1e3:.1f} ms"


def _ratio(value: float | None, to: float | None) -> str:
    if not value or not to or math.isnan(value) or math.isnan(to):
        return "-"
    return f"{value / to:.3f}"


# Runs


class BytesSummary(TypedDict):
    """Bytes an iteration, at full size and as they were on the wire; None where they are not known."""

    measured: float | None
    theory: float | None
    measured_raw: float | None
    theory_raw: float | None


class JobSummary(TypedDict):
    """The iteration times of a job in a window, in seconds, each with its interval."""

    job: str
    iterations: int
    effective_iterations: float | None
    mean_s: float | None
    p50_s: float | None
    p99_s: float | None
    mean_interval_s: list[float | None]
    p50_interval_s: list[float | None]
    p99_interval_s: list[float | None]
    bytes_per_iteration: BytesSummary


# From whom and to whom cross traffic goes, and its load in bit/s, at full size and as it was on the wire.
LoadSummary = TypedDict(
    "LoadSummary",
    {
        "source": str,
        "from": str,
        "to": str,
        "requested_bps": "float | None",
        "achieved_bps": "float | None",
        "requested_raw_bps": float,
        "achieved_raw_bps": "float | None",
    },
)


class WindowData(TypedDict):
    """A measured window."""

    window: str
    valid: bool
    reasons: list[str]
    jobs: list[JobSummary]
    cross_traffic: list[LoadSummary]


class RunSummary(TypedDict):
    """A run; `capture` is the manifest's record of what captures lost, phases are seconds by name."""

    run: str
    experiment: str
    path: str
    outcome: str
    stage: str | None
    error: str | None
    valid: bool | None
    reasons: list[str]
    scale: int
    windows: list[WindowData]
    capture: JsonObject | None
    phases: dict[str, float]
    overhead_s: float | None
    notes: list[str]


def run_summary(manifest: Summary, path: Path, *, outcome: str) -> RunSummary:
    """A run in one object: what was requested, what was achieved, whether it counts."""
    return {
        "run": manifest.run,
        "experiment": manifest.experiment,
        "path": str(path),
        "outcome": outcome,
        "stage": manifest.stage,
        "error": manifest.error,
        "valid": manifest.valid,
        "reasons": list(manifest.reasons),
        "scale": manifest.scale,
        "windows": [_window_summary(window, manifest.scale) for window in manifest.windows],
        "capture": asdict(manifest.capture) if manifest.capture else None,
        "phases": dict(manifest.phases),
        "overhead_s": manifest.overhead_s,
        "notes": list(manifest.notes),
    }


def _window_summary(window: WindowSummary, scale: int) -> WindowData:
    def scaled_back(value: float | None) -> float | None:
        return None if value is None else value * scale

    return {
        "window": window.name,
        "valid": window.valid,
        "reasons": list(window.reasons),
        "jobs": [
            {
                "job": row.job,
                "iterations": row.iterations,
                "effective_iterations": row.effective_iterations,
                "mean_s": row.mean_s,
                "p50_s": row.p50_s,
                "p99_s": row.p99_s,
                "mean_interval_s": [row.mean_low_s, row.mean_high_s],
                "p50_interval_s": [row.p50_low_s, row.p50_high_s],
                "p99_interval_s": [row.p99_low_s, row.p99_high_s],
                "bytes_per_iteration": {
                    "measured": scaled_back(row.sent_bytes),
                    "theory": scaled_back(row.theory_bytes),
                    "measured_raw": row.sent_bytes,
                    "theory_raw": row.theory_bytes,
                },
            }
            for row in window.training
        ],
        "cross_traffic": [
            {
                "source": load.source,
                "from": load.src,
                "to": load.dst,
                "requested_bps": scaled_back(load.requested_bps),
                "achieved_bps": scaled_back(load.achieved_bps),
                "requested_raw_bps": load.requested_bps,
                "achieved_raw_bps": load.achieved_bps,
            }
            for load in window.loads
        ],
    }


def outcomes_text(outcomes: Sequence[tuple[Path, Summary]], page: Path | None) -> str:
    """What `orch run` ends with: a row a run, window and job, then verdicts and where everything lies."""
    rows = []
    for _, manifest in outcomes:
        rows += window_rows(manifest)
    lines = [""]
    if rows:
        lines += [layout.table(HEAD, rows), ""]
    for path, manifest in outcomes:
        lines.append(f"#{manifest.repetition} {manifest.run}: {verdict(manifest)}")
        lines += [f"  - {reason}" for reason in manifest.reasons]
        lines += [f"  note: {note}" for note in manifest.notes]
        lines.append(f"  {path}")
    if page is not None:
        lines += ["", f"report: {page}"]
    return "\n".join(lines)


def verdict(manifest: Summary, outcome: str | None = None) -> str:
    """One word, or two, on whether a run counts."""
    ended = outcome or manifest.outcome
    if ended != "completed":
        return f"{ended} ({manifest.stage})"
    return "valid" if manifest.valid else "INVALID"


_TIMES = ("mean\nms", "p50\nms", "p99\nms")
HEAD = ("run", "window", "iter-\nations", *_TIMES, "requested", "achieved", "sent/\ntheory", "verdict")


def window_rows(manifest: Summary) -> list[list[str]]:
    """A row under `HEAD` for each window and job; rates are at full size."""
    scale, repetition = manifest.scale, "?" if manifest.repetition is None else manifest.repetition
    rows = []
    for window in manifest.windows:
        achieved = window.achieved_bps
        rows += [
            [
                f"#{repetition}" + (f" {row.job}" if len(window.training) > 1 else ""),
                window.name,
                str(row.iterations),
                *map(ms, (row.mean_s, row.p50_s, row.p99_s)),
                rate_or_dash(window.requested_bps * scale if window.loads else None),
                rate_or_dash(achieved * scale if window.loads and achieved is not None else None),
                _ratio(row.sent_bytes, row.theory_bytes),
                "valid" if window.valid else "INVALID",
            ]
            for row in window.training
        ]
    return rows


def listing(entries: Sequence[Listed], results: Path) -> str:
    """The store as a table, and what to do with what is unfinished."""
    if not entries:
        return f"no runs in {results}"
    rows = []
    for entry in sorted(entries, key=lambda entry: entry.run):
        training = [row for window in entry.manifest.windows for row in window.training]
        rows.append(
            [
                entry.run,
                entry.manifest.experiment,
                began_text(entry.manifest),
                str(len(entry.manifest.windows)),
                ms_or_dash(training[0].mean_s) if training else "-",
                verdict(entry.manifest, entry.outcome),
            ]
        )
    lines = [layout.table(("run", "experiment", "began", "windows", "mean", "verdict"), rows)]
    lost = [entry for entry in entries if not entry.sealed and entry.outcome == "lost"]
    if lost:
        lines += ["", f"{len(lost)} unfinished: `orch recover` brings home what lies on hosts and seals what there is"]
    return "\n".join(lines)
