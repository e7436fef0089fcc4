"""Runs in words and as summaries, from plain data alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.core import layout
from orchestrator.core.units import rate_text
from orchestrator.store.rundir import Entry, began_text


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


def run_summary(manifest: Mapping[str, Any], path: Path, *, outcome: str) -> dict[str, Any]:
    """A run in one object: what was asked, what was achieved, whether it counts; NaN becomes null."""
    scale = manifest.get("scale", 1)
    return {
        "run": manifest["run"],
        "experiment": manifest["experiment"],
        "path": str(path),
        "outcome": outcome,
        "stage": manifest.get("stage"),
        "error": manifest.get("error"),
        "valid": bool(manifest.get("valid")),
        "reasons": manifest.get("reasons", []),
        "scale": scale,
        "windows": [_window_summary(window, scale) for window in manifest.get("windows", [])],
        "capture": manifest.get("capture"),
        "phases": manifest.get("phases", {}),
        "overhead_s": manifest.get("overhead_s"),
        "notes": manifest.get("notes", []),
    }


def _window_summary(window: Mapping[str, Any], scale: int) -> dict[str, Any]:
    def scaled_back(value: float | None) -> float | None:
        return None if value is None else value * scale

    return {
        "window": window["window"],
        "valid": window["valid"],
        "reasons": window["reasons"],
        "jobs": [
            {
                "job": row["job"],
                "iterations": row["iterations"],
                "effective_iterations": row.get("effective_iterations"),
                "mean_s": row["mean_s"],
                "p50_s": row["p50_s"],
                "p99_s": row["p99_s"],
                "mean_interval_s": [row["mean_low_s"], row["mean_high_s"]],
                "p50_interval_s": [row["p50_low_s"], row["p50_high_s"]],
                "p99_interval_s": [row["p99_low_s"], row["p99_high_s"]],
                "bytes_per_iteration": {
                    "measured": scaled_back(row["sent_bytes"]),
                    "theory": scaled_back(row["theory_bytes"]),
                    "measured_raw": row["sent_bytes"],
                    "theory_raw": row["theory_bytes"],
                },
            }
            for row in window["training"]
        ],
        "cross_traffic": [
            {
                "source": load["source"],
                "from": load["src"],
                "to": load["dst"],
                "requested_bps": scaled_back(load["requested_bps"]),
                "achieved_bps": scaled_back(load["achieved_bps"]),
                "requested_raw_bps": load["requested_bps"],
                "achieved_raw_bps": load["achieved_bps"],
            }
            for load in window["loads"]
        ],
    }


def outcomes_text(outcomes: Sequence[tuple[Path, Mapping[str, Any]]], page: Path | None) -> str:
    """What `orch run` ends with: a row a run, window and job, then verdicts and where everything lies."""
    rows = []
    for _, manifest in outcomes:
        rows += window_rows(manifest)
    lines = [""]
    if rows:
        lines += [layout.table(HEAD, rows), ""]
    for path, manifest in outcomes:
        lines.append(f"#{manifest['repetition']} {manifest['run']}: {verdict(manifest)}")
        lines += [f"  - {reason}" for reason in manifest.get("reasons", [])]
        lines += [f"  note: {note}" for note in manifest.get("notes", [])]
        lines.append(f"  {path}")
    if page is not None:
        lines += ["", f"report: {page}"]
    return "\n".join(lines)


def verdict(manifest: Mapping[str, Any], outcome: str | None = None) -> str:
    """One word, or two, on whether a run counts."""
    ended = outcome or manifest["outcome"]
    if ended != "completed":
        return f"{ended} ({manifest.get('stage')})"
    return "valid" if manifest.get("valid") else "INVALID"


_TIMES = ("mean\nms", "p50\nms", "p99\nms")
HEAD = ("run", "window", "iter-\nations", *_TIMES, "requested", "achieved", "sent/\ntheory", "verdict")


def window_rows(manifest: Mapping[str, Any]) -> list[list[str]]:
    """A row under `HEAD` for each window and job; rates are at full size."""
    rows = []
    scale = manifest["scale"]
    for window in manifest["windows"]:
        requested = sum(load["requested_bps"] for load in window["loads"]) * scale
        achieved = [load["achieved_bps"] for load in window["loads"]]
        known = [value for value in achieved if value is not None]
        rows += [
            [
                f"#{manifest.get('repetition', '?')}" + (f" {row['job']}" if len(window["training"]) > 1 else ""),
                window["window"],
                str(row["iterations"]),
                *(ms(row[key]) for key in ("mean_s", "p50_s", "p99_s")),
                rate_or_dash(requested) if window["loads"] else "-",
                rate_or_dash(sum(known) * scale) if known and len(known) == len(achieved) else "-",
                _ratio(row["sent_bytes"], row["theory_bytes"]),
                "valid" if window["valid"] else "INVALID",
            ]
            for row in window["training"]
        ]
    return rows


def listing(entries: Sequence[Entry], results: Path) -> str:
    """The store as a table, and what to do with what is unfinished."""
    if not entries:
        return f"no runs in {results}"
    rows = []
    for entry in sorted(entries, key=lambda entry: entry.run):
        training = [row for window in entry.manifest.get("windows", []) for row in window.get("training", [])]
        rows.append(
            [
                entry.run,
                str(entry.manifest["experiment"]),
                began_text(entry.manifest),
                str(len(entry.manifest.get("windows", []))),
                ms_or_dash(training[0]["mean_s"]) if training else "-",
                verdict(entry.manifest, entry.outcome),
            ]
        )
    lines = [layout.table(("run", "experiment", "began", "windows", "mean", "verdict"), rows)]
    lost = [entry for entry in entries if not entry.sealed and entry.outcome == "lost"]
    if lost:
        lines += ["", f"{len(lost)} unfinished: `orch recover` brings home what lies on hosts and seals what there is"]
    return "\n".join(lines)
