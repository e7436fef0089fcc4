"""Plans and runs in words and as summaries, from plain data alone."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.core import terminal
from orchestrator.core.units import duration_text, rate_text, size_text
from orchestrator.experiment.experiment import Measure
from orchestrator.experiment.plan import RunPlan
from orchestrator.parts.launch import Launch
from orchestrator.store.rundir import Entry, began_text


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, indent: str = "") -> str:
    """Text columns under a head, numbers (all but the first column) to the right."""
    rows = [[terminal.line(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = []
    for row in [head, ["-" * width for width in widths], *rows]:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append(indent + "  ".join(cells).rstrip())
    return "\n".join(lines)


def rate_or_dash(value: float | None) -> str:
    """A rate in bit/s to four digits; a dash for one that is not known."""
    return "-" if value is None or math.isnan(value) else rate_text(float(f"{value:.4g}"))


def ms_or_dash(value: float | None) -> str:
    """Seconds in milliseconds; a dash for what is not known."""
    return "-" if value is None or math.isnan(value) else f"{value * 1e3:.1f} ms"


def _ratio(value: float | None, to: float | None) -> str:
    if not value or not to or math.isnan(value) or math.isnan(to):
        return "-"
    return f"{value / to:.3f}"


# Plans


def _kind(topology: Mapping[str, Any]) -> str:
    """What hosts a run had, by its manifest."""
    return " ".join(str(topology[key]) for key in ("kind", "runtime", "image") if topology.get(key))


def plan_text(runs: Sequence[RunPlan]) -> str:
    """Every process of the first run in full, and how the others differ."""
    first = runs[0]
    topology = first.topology
    hosts = ", ".join(f"{host.name} ({host.address})" for host in topology.hosts)
    count = f"{len(runs)} run{'s' if len(runs) > 1 else ''}"
    lines = [
        f"experiment {first.experiment}: {count} on {topology.described} hosts {hosts}",
        f"scale {topology.scale}, MTU {topology.mtu}; links " + _links(first),
        "",
    ]
    lines += [f"change: {change.name} on {change.node}" for change in first.changes]
    for launch in (*first.keepers(), *first.collectors):
        lines += _launch_lines(launch)
    for job in first.jobs:
        told = ", ".join(f"{rank.rank}={rank.node}" for rank in job.job.ranks)
        lines.append(f"job {job.job.name} ({job.workload}), ranks {told}")
        if job.theory is not None:
            lines.append(
                f"  theory: {size_text(round(job.theory.bytes_per_iteration))} sent by a rank in an iteration "
                f"({job.theory.source})"
            )
        for launch in job.launches:
            lines += _launch_lines(launch)
    for window in first.windows:
        measure = window.measure
        ends = [f"{measure.iterations} iterations"] if measure.iterations else []
        ends += [duration_text(measure.at_most)] if measure.at_most else []
        lines.append(f"window {window.name}: {_warmup(measure)}, then {' or '.join(ends)}")
        for source in window.sources:
            for demand in source.demands:
                scaled = f" ({rate_text(demand.rate / topology.scale)} scaled)" if topology.scale != 1 else ""
                lines.append(
                    f"  traffic {source.name}: {demand.src} -> {demand.dst} at {rate_text(demand.rate)}{scaled}"
                )
            for launch in source.launches:
                lines += _launch_lines(launch)
            if source.raised:
                means = ", ".join(raised.means for raised in source.raised)
                lines.append(f"  while the load is not reached alone on the link: {means}")
    lines.append("")
    lines += [f"run {run.repetition}: point {run.point}, seed {run.seed}" for run in runs]
    return "\n".join(lines)


def _warmup(measure: Measure) -> str:
    told = f"{measure.before} iterations of warm-up"
    return f"{told}, of which the steady ones count" if measure.warmup == "auto" else told


def _links(run: RunPlan) -> str:
    rates = {link.rate for link in run.topology.links}
    scale = run.topology.scale
    told = [rate_text(rate) + (f" set up as {rate_text(rate / scale)}" if scale != 1 else "") for rate in sorted(rates)]
    return ", ".join(told)


def _launch_lines(launch: Launch) -> list[str]:
    lines = [f"  {launch.node}: {launch.name}: {shlex.join(launch.argv)}"]
    if launch.env:
        lines.append("      env " + " ".join(f"{key}={shlex.quote(value)}" for key, value in launch.env.items()))
    if launch.env_from:
        lines.append("      env_from " + " ".join(f"{name}<{source}" for name, source in launch.env_from.items()))
    if launch.files:
        lines.append("      files " + " ".join(launch.files))
    return lines


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
        rows += _rows(manifest)
    lines = [""]
    if rows:
        lines += [table(_HEAD, rows), ""]
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


_HEAD = ("run", "window", "iterations", "mean", "p50", "p99", "asked", "achieved", "sent/theory", "verdict")


def _rows(manifest: Mapping[str, Any]) -> list[list[str]]:
    rows = []
    scale = manifest["scale"]
    for window in manifest["windows"]:
        asked = sum(load["requested_bps"] for load in window["loads"]) * scale
        achieved = [load["achieved_bps"] for load in window["loads"]]
        known = [value for value in achieved if value is not None]
        rows += [
            [
                f"#{manifest.get('repetition', '?')}" + (f" {row['job']}" if len(window["training"]) > 1 else ""),
                window["window"],
                str(row["iterations"]),
                *(ms_or_dash(row[key]) for key in ("mean_s", "p50_s", "p99_s")),
                rate_or_dash(asked) if window["loads"] else "-",
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
    lines = [table(("run", "experiment", "began", "windows", "mean", "verdict"), rows)]
    lost = [entry for entry in entries if not entry.sealed and entry.outcome == "lost"]
    if lost:
        lines += ["", f"{len(lost)} unfinished: `orch recover` brings home what lies on hosts and seals what there is"]
    return "\n".join(lines)


def run_text(entry: Entry) -> str:
    """One run in words."""
    manifest = entry.manifest
    topology = manifest.get("topology", {})
    hosts = [node["name"] for node in topology.get("nodes", []) if node["kind"] == "host"]
    lines = [
        f"{entry.run} of experiment {manifest['experiment']}: {verdict(manifest, entry.outcome)}",
        f"  folder    {entry.path}",
        f"  began     {began_text(manifest)}",
        f"  testbed   {_kind(topology)}, scale {manifest.get('scale')}, hosts {', '.join(hosts)}",
    ]
    lines += [
        f"  job       {job['name']}: {job['workload']} {job.get('model') or ''}, {len(job['ranks'])} ranks"
        for job in manifest.get("jobs", [])
    ]
    if manifest.get("error"):
        lines += ["  error     " + line for line in str(manifest["error"]).splitlines()]
    lines += [f"  reason    {reason}" for reason in manifest.get("reasons", [])]
    lines += [f"  note      {note}" for note in manifest.get("notes", [])]
    rows = _rows(manifest) if manifest.get("windows") else []
    if rows:
        lines += ["", table(_HEAD, rows, indent="  ")]
    for window in manifest.get("windows", []):
        lines += _variation(window)
        lines += ["", f"  gates of {window['window']}:"]
        lines += [f"    {_mark(gate)} {gate['name']}: {gate['message']}" for gate in window.get("gates", [])]
    if manifest.get("phases"):
        lines += ["", "  seconds   " + ", ".join(f"{name} {value:.2f}" for name, value in manifest["phases"].items())]
    return "\n".join(lines)


def _variation(window: Mapping[str, Any]) -> list[str]:
    """How much iterations vary, of each job and rank; nothing of a run that was sealed before this was worked out."""
    rows = [
        [
            "all ranks" if row["rank"] == -1 else f"rank {row['rank']}",
            *(ms_or_dash(row[key]) for key in ("p50_s", "p95_s", "p99_s", "max_s")),
            *(_percent(row[key]) for key in ("cv", "straggler_share", "overlapped", "efficiency")),
            str(row["orders"] or "-"),
        ]
        for row in window.get("variation", [])
        if row["iterations"]
    ]
    head = ("", "p50", "p95", "p99", "longest", "variation", "straggling", "hidden", "efficiency", "orders")
    title = f"  variation of the iteration time in {window['window']}:"
    return ["", title, table(head, rows, indent="    ")] if rows else []


def _percent(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.1%}"


def _mark(gate: Mapping[str, Any]) -> str:
    return {True: "ok  ", False: "FAIL", None: "?   "}[gate["passed"]]
