"""One run in words: `orch show`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from orchestrator.core.screen import alike, layout
from orchestrator.experiment.words.describe import HEAD, iterations_counted, ms, verdict, window_rows
from orchestrator.store.manifests import stayed
from orchestrator.store.manifests.window_records import Variation, Window
from orchestrator.store.rundir import Entry, began_text, moment_text

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


def run_text(entry: Entry, *, verbose: bool = False, width: int | None = None) -> str:
    """One run in words, broken to `width` columns; gates that say alike are one line, unless `verbose`."""
    manifest = entry.manifest
    lines = [f"{entry.run} of experiment {manifest.experiment}: {verdict(manifest, entry.outcome)}"]
    lines += [layout.hanging(value, width, indent=f"  {name:<9} ", rest=" " * 12) for name, value in _facts(entry)]
    windows = manifest.windows
    if rows := [row[1:] for row in window_rows(manifest)]:
        lines += ["", layout.table(HEAD[1:], rows, indent="  ")]
        notes = [*_scaled(manifest.scale), *iterations_counted(windows)]
        lines += [layout.hanging(text, width, indent="    ") for text in notes]
    lines += _variation(windows, verbose=verbose, width=width)
    if any(window.gates for window in windows):
        lines += ["", *gate_lines(windows, verbose=verbose, width=width)]
    if manifest.phases:
        seconds = ", ".join(f"{name} {value:.2f}" for name, value in manifest.phases.items())
        lines += ["", layout.hanging(seconds, width, indent="  seconds   ")]
    return "\n".join(lines)


def _scaled(scale: int) -> Iterator[str]:
    """What rates and bytes are told in, where hosts of this machine stand for faster ones."""
    if scale > 1:
        yield f"rates: at full size, {scale} times what the links carried; bytes that gates name: as they were carried"


def _facts(entry: Entry) -> Iterator[tuple[str, str]]:
    manifest = entry.manifest
    topology = manifest.topology
    hosts = alike.names(node.name for node in topology.hosts)
    kind = " ".join(text for text in (topology.kind, topology.runtime, topology.image) if text)
    yield "folder", str(entry.path)
    yield "began", began_text(manifest)
    yield "testbed", f"{kind}, scale {manifest.scale}, hosts {hosts}"
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
    """Every gate of a run by its kind, those that failed first; each line says in which windows, where not in all.

    Unless `verbose`, gates of one kind and outcome that say alike are one line, with what differs as ranges.
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
    """What gates of one kind and outcome say: windows that say alike are named together, unless they are all."""
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
    """How much iterations vary in each window, `verbose` by rank too; nothing of a run whose manifest has none."""
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
