"""Write runs as summaries, tables and text: what `orch run`, `orch ls` and `orch show` print."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from orchestrator.core.opendata import JsonObject
from orchestrator.core.screen import alike, layout
from orchestrator.core.units import rate_text
from orchestrator.store.manifests import stayed
from orchestrator.store.rundir import began_text, moment_text

if TYPE_CHECKING:
    from orchestrator.store.manifests.records import Manifest, Variation, Window
    from orchestrator.store.manifests.summaries import Summary, WindowSummary
    from orchestrator.store.rundir import Entry, Listed

REPEATED = "measured again"

_TIMES = ("mean\nms", "p50\nms", "p99\nms")
HEAD = ("run", "window", "iter-\nations", *_TIMES, "requested", "achieved", "sent/\ntheory", "verdict")
_MARKS = {False: "FAIL", None: "?", True: "ok"}  # in the order in which they are shown
_STATES = {False: "failed", None: "not judged", True: "passed"}

_VARIATION = (  # the heads of columns, and what those beyond the times are
    ("", ""),
    ("p50\nms", ""),
    ("p95\nms", ""),
    ("p99\nms", ""),
    ("max\nms", ""),
    ("cv", "cv: standard deviation / mean"),
    ("strag-\ngler", "straggler: share of an iteration spent waiting for the slowest rank"),
    ("over-\nlapped", "overlapped: share of communication during which the rank computed"),
    (
        "effi-\nciency",
        "efficiency (TicTac's scheduling efficiency): 100% where the shorter of computing and communicating is "
        "overlapped, 0% where nothing is, below 0% where the rank also did neither",
    ),
    ("orders", "orders: distinct orders in which the communications of an iteration began"),
)


def rate_or_dash(value: float | None) -> str:
    """Write a rate in bit/s to four digits; a dash for one that is not known."""
    return "-" if value is None or math.isnan(value) else rate_text(float(f"{value:.4g}"))


def ms(value: float | None) -> str:
    """Write seconds in milliseconds, without the unit, for a column that has it; a dash for what is not known."""
    return ms_or_dash(value).removesuffix(" ms")


def ms_or_dash(value: float | None) -> str:
    """Write seconds in milliseconds; a dash for what is not known."""
    return "-" if value is None or math.isnan(value) else f"{value * 1e3:.1f} ms"


def _ratio(value: float | None, to: float | None) -> str:
    if not value or not to or math.isnan(value) or math.isnan(to):
        return "-"
    return f"{value / to:.3f}"


# Summaries of runs, as JSON


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
    interval_note: str
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
    """A summary of a measured window."""

    window: str
    valid: bool
    reasons: list[str]
    jobs: list[JobSummary]
    cross_traffic: list[LoadSummary]


class RunSummary(TypedDict):
    """A summary of a run.

    `capture` is the manifest's record of packets that captures lost; `phases` has seconds by name.
    """

    run: str
    experiment: str
    path: str
    outcome: str
    stage: str | None
    error: str | None
    valid: bool | None
    reasons: list[str]
    scale: int
    salt: str | None
    dilation: int
    windows: list[WindowData]
    capture: JsonObject | None
    phases: dict[str, float]
    overhead_s: float | None
    notes: list[str]


def run_summary(manifest: Summary, path: Path, *, outcome: str) -> RunSummary:
    """Summarize a run in one object: what was requested, what was achieved, whether it counts."""
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
        "salt": manifest.salt,
        "dilation": manifest.dilation,
        "windows": [_window_summary(window, manifest.scale, manifest.dilation) for window in manifest.windows],
        "capture": asdict(manifest.capture) if manifest.capture else None,
        "phases": dict(manifest.phases),
        "overhead_s": manifest.overhead_s,
        "notes": list(manifest.notes),
    }


def _window_summary(window: WindowSummary, scale: int, dilation: int) -> WindowData:
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
                "interval_note": row.interval_note,
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
                "requested_raw_bps": load.requested_bps / dilation,
                "achieved_raw_bps": None if load.achieved_bps is None else load.achieved_bps / dilation,
            }
            for load in window.loads
        ],
    }


def interval_notes(windows: Sequence[WindowSummary]) -> list[str]:
    """Write what is out of the ordinary in iteration times, a line for each window and job of which there is any."""
    return [
        f"{window.name}{f', {row.job}' if len(window.training) > 1 else ''}: {row.interval_note}"
        for window in windows
        for row in window.training
        if row.interval_note
    ]


# Tables of runs


def outcomes_text(outcomes: Sequence[tuple[Path, Manifest]], page: Path | None) -> str:
    """Write the output of `orch run`: a row for each run, window and job, then verdicts and the folder of results."""
    rows = []
    last = {manifest.repetition: manifest for _, manifest in outcomes}
    for _, manifest in outcomes:
        rows += window_rows(manifest, repeated=manifest is not last[manifest.repetition])
    lines = [""]
    if rows:
        lines += [layout.table(HEAD, rows), ""]
    for path, manifest in outcomes:
        repeated = manifest is not last[manifest.repetition]
        lines.append(f"#{manifest.repetition} {manifest.run}: {REPEATED if repeated else verdict(manifest)}")
        lines += [f"  {told}" for told in (*iterations_counted(manifest.windows), *interval_notes(manifest.windows))]
        lines += [f"  - {reason}" for reason in manifest.reasons]
        lines += [f"  note: {note}" for note in manifest.notes]
        lines.append(f"  {path}")
    if page is not None:
        lines += ["", f"report: {page}"]
    return "\n".join([*lines, *_conclusion(list(last.values()))])


def _conclusion(runs: Sequence[Manifest]) -> list[str]:
    """Write how many runs are valid; of others measured to their end, what works, what disturbed them, and a remedy."""
    invalid = [run for run in runs if not run.valid]
    if not invalid or any(run.outcome != "completed" for run in runs):
        return []
    valid = len(runs) - len(invalid)
    counted = f"{valid} of {len(runs)} runs {'is' if valid == 1 else 'are'} valid."
    disturbed = [f"#{run.repetition}" for run in invalid if run.disturbed]
    if len(disturbed) < len(invalid):
        return ["", f"{counted} The reasons above say why others are not; `orch show RUN` lists every gate of a run."]
    machine = "this machine" if runs[0].topology.kind == "local" else "the hosts"
    return [
        "",
        f"{counted} Every run was measured whole: hosts, training, cross traffic and collectors work.",
        f"Other work on {machine} disturbed {alike.names(disturbed)}: ranks waited for processors, or iteration times "
        "changed as it came and went.",
        f"End it (notes above name programs that were busy), or wait until {machine} is quieter, and give the same "
        "command again.",
    ]


def iterations_counted(windows: Sequence[Window]) -> list[str]:
    """Write why windows have more or fewer iterations than requested: a sentence for windows with equally many."""
    more: dict[int, list[int]] = {}
    for window in windows:
        wanted = window.wanted_iterations
        made = [row.iterations for row in window.training]
        if wanted is not None and window.warmup == "auto" and any(one > wanted for one in made):
            more.setdefault(wanted, []).extend(made)
    return [
        f"iterations: {wanted} were asked for; those of the warm-up that were steady already count, too,"
        f" so that windows have up to {max(made)}"
        for wanted, made in more.items()
    ]


def verdict(manifest: Summary, outcome: str | None = None) -> str:
    """Write in a word, or two, whether a run counts."""
    ended = outcome or manifest.outcome
    if ended != "completed":
        return f"{ended} ({manifest.stage})"
    return "valid" if manifest.valid else "INVALID"


def window_rows(manifest: Summary, *, repeated: bool = False) -> list[list[str]]:
    """Return a row under `HEAD` for each window and job; rates at full size. A `repeated` run was measured again."""
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
                "valid" if window.valid else REPEATED if repeated else "INVALID",
            ]
            for row in window.training
        ]
    return rows


def listing(entries: Sequence[Listed], results: Path) -> str:
    """Write the store as a table, and what to do with unfinished runs."""
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
    if without := [entry.run for entry in entries if entry.sealed and entry.manifest.unreduced]:
        lines += ["", f"{len(without)} without tables: `orch reduce {without[0]}` makes them from what there is"]
    lost = [entry for entry in entries if not entry.sealed and entry.outcome == "lost"]
    if lost:
        lines += ["", f"{len(lost)} unfinished: `orch recover` brings home what lies on hosts and seals what there is"]
    return "\n".join(lines)


# One run


def run_text(entry: Entry, *, verbose: bool = False, width: int | None = None, why: Sequence[str] = ()) -> str:
    """Write one run, broken to `width` columns; gates with the same text are one line, unless `verbose`.

    `why` says what made its iterations slow.
    """
    manifest = entry.manifest
    lines = [f"{entry.run} of experiment {manifest.experiment}: {verdict(manifest, entry.outcome)}"]
    lines += [layout.hanging(value, width, indent=f"  {name:<9} ", rest=" " * 12) for name, value in _facts(entry)]
    lines += [layout.hanging(line, width, indent=f"  {'why':<9} ", rest=" " * 12) for line in why]
    windows = manifest.windows
    if rows := [row[1:] for row in window_rows(manifest)]:
        lines += ["", layout.table(HEAD[1:], rows, indent="  ")]
        notes = [*_scaled(manifest), *iterations_counted(windows), *interval_notes(windows)]
        lines += [layout.hanging(text, width, indent="    ") for text in notes]
    lines += _variation(windows, verbose=verbose, width=width)
    if any(window.gates for window in windows):
        lines += ["", *gate_lines(windows, verbose=verbose, width=width)]
    if manifest.phases:
        seconds = ", ".join(f"{name} {value:.2f}" for name, value in manifest.phases.items())
        lines += ["", layout.hanging(seconds, width, indent="  seconds   ")]
    return "\n".join(lines)


def _scaled(manifest: Manifest) -> Iterator[str]:
    """Write the unit of rates, bytes and times, where local hosts stand for faster ones."""
    rates = manifest.scale * manifest.dilation
    if rates > 1:
        yield f"rates: at full size, {rates} times what the links carried; bytes that gates name: as they were carried"
    if manifest.dilation > 1:
        yield f"times: at full size, divided by the dilation ({manifest.dilation})"


def scale_text(manifest: Summary) -> str:
    """Write the scale of rates as the experiment says it, and the dilation of time where there is one."""
    if manifest.dilation == 1:
        return str(manifest.scale)
    return f"{manifest.scale * manifest.dilation}, dilation {manifest.dilation} (sizes 1:{manifest.scale})"


def _facts(entry: Entry) -> Iterator[tuple[str, str]]:
    manifest = entry.manifest
    topology = manifest.topology
    hosts = alike.names(node.name for node in topology.hosts)
    kind = " ".join(text for text in (topology.kind, topology.runtime, topology.image) if text)
    yield "folder", str(entry.path)
    yield "began", began_text(manifest)
    yield "testbed", f"{kind}, scale {scale_text(manifest)}, hosts {hosts}"
    yield (
        "seed",
        f"--seed {manifest.salt} repeats its random numbers" if manifest.salt else "none is known: an older run",
    )
    for job in manifest.jobs:
        model = f" {job.model}" if job.model else ""
        yield "job", f"{job.name}: {job.workload}{model}, {len(job.ranks)} ranks"
    for line in stayed.where(manifest):
        yield "captures", f"stay on {line}"
    for line in (manifest.error or "").splitlines():
        yield "error", line
    if manifest.unreduced:
        yield "tables", f"none: {manifest.unreduced}; `orch reduce {entry.run}` makes them"
    for made in manifest.reductions[1:]:
        yield "tables", f"made again {moment_text(made.when_ns)} by {made.why}, {made.versions.get('orch-testbed')}"
    for reason in manifest.reasons:
        yield "reason", reason
    for note in manifest.notes:
        yield "note", note


# Gates


def gate_lines(windows: Sequence[Window], *, verbose: bool, width: int | None) -> list[str]:
    """Write every gate of a run by its kind, those that failed first; each line names windows, where not all.

    Unless `verbose`, gates of one kind and outcome with similar texts are one line, with the differences as ranges.
    """
    gates = [(window.name, gate) for window in windows for gate in window.gates]
    counts = {passed: sum(gate.passed is passed for _, gate in gates) for passed in _MARKS}
    counted = ", ".join(f"{count} {_STATES[passed]}" for passed, count in counts.items() if count)
    names = [window.name for window in windows]
    lines = [
        layout.hanging(
            f"{counted}" + ("" if verbose else "; --verbose lists each"),
            width,
            indent=f"  gates of {alike.names(names)}: ",
            rest="    ",
        )
    ]
    kind_width = max(len(gate.name) for _, gate in gates)
    for passed, mark in _MARKS.items():
        for kind in dict.fromkeys(gate.name for _, gate in gates if gate.passed is passed):
            found = [(name, gate.message) for name, gate in gates if (gate.name, gate.passed) == (kind, passed)]
            texts = _one_by_one(found, names) if verbose else _together(found, names)
            start = f"    {mark:<4} {kind:<{kind_width}}  "
            lines += [layout.hanging(text, width, indent=start, rest=" " * 9) for text in texts]
    return lines


def _one_by_one(found: Sequence[tuple[str, str]], windows: Sequence[str]) -> list[str]:
    return [f"{window}: {message}" if len(windows) > 1 else message for window, message in found]


def _together(found: Sequence[tuple[str, str]], windows: Sequence[str]) -> list[str]:
    """Return the texts of gates of one kind and outcome: windows with the same text are named together, if not all."""
    said: dict[tuple[str, ...], list[str]] = {}
    for window in dict.fromkeys(window for window, _ in found):
        forms = alike.forms(message for other, message in found if other == window)
        said.setdefault(forms, []).append(window)
    texts = []
    for alike_ones in said.values():
        where = "" if len(alike_ones) == len(windows) else f"{alike.names(alike_ones)}: "
        texts += [
            where + text for text in alike.sentences(message for window, message in found if window in alike_ones)
        ]
    return texts


# Variation


def _variation(windows: Sequence[Window], *, verbose: bool, width: int | None) -> list[str]:
    """Write the variation of iterations in each window, `verbose` by rank too; nothing where the manifest has none."""
    lines: list[str] = []
    rows = []
    for window in windows:
        for row in window.variation:
            whole = row.rank == -1
            if not row.iterations or not (whole or verbose):
                continue
            rows.append([f"{window.name} {row.job}" if whole else f"  rank {row.rank}", *_figures(row)])
    if not rows:
        return lines
    title = "variation of the iteration time" + ("" if verbose else "; --verbose shows each rank")
    heads, rows = layout.saying([head for head, _ in _VARIATION], rows)
    notes = "; ".join(note for head, note in _VARIATION if note and head in heads)
    told = layout.table(heads, rows, indent="  ")
    return [*lines, "", f"  {title}:", told, layout.hanging(notes, width, indent="    ")]


def _figures(row: Variation) -> list[str]:
    return [
        *map(ms, (row.p50_s, row.p95_s, row.p99_s, row.max_s)),
        *map(_percent, (row.cv, row.straggler_share, row.overlapped, row.efficiency)),
        str(row.orders or "-"),
    ]


def _percent(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.1%}"
