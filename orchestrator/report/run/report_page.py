"""Build the report (`report_page.html`): one self-contained page about one or more sealed runs, with its verdict."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from orchestrator.analysis.causes import stored, words
from orchestrator.analysis.compare import repeated_draws
from orchestrator.core.errors import StoreError
from orchestrator.report import page, traffic_section
from orchestrator.report.run import fabric, over_runs, run_tables, schedules, timeline
from orchestrator.report.run.figures import OF_RUNS, draw_all
from orchestrator.report.runs import Run, load
from orchestrator.report.tables import Cell, Table, table
from orchestrator.store.attempts import Attempt, Key, attempts
from orchestrator.store.manifests.summaries import Summary
from orchestrator.store.rundir import Entry

_MOST_WHY = 160  # letters of why a run is not valid, in the list of several runs; its own report has all

INVALID = "INVALID: do not use these numbers as they stand"
_TITLES = {"failed": "FAILED", "interrupted": "INTERRUPTED", "lost": "LOST", "running": "NOT FINISHED"}
_MOST_OPEN = 2  # reasons that are not folded


def render(runs: Sequence[Path], output: Path, *, others: Sequence[Summary] = ()) -> Path:
    """Write the page `output`, and its figures as SVG and PDF into `<output's stem>-figures` beside it.

    The page needs nothing else to be shown. Of several runs it has what they say together, and where the report of each
    by itself lies. `others` are runs of the store that may have measured again what was not valid in these.
    StoreError when a path is no run or `output` cannot be written.
    """
    if not runs:
        raise StoreError("a report needs at least one run", hint="orch ls")
    read = load(runs)
    return page.write(
        "run/report_page.html",
        output,
        lambda folder: {
            "title": _title(read),
            "runs": [_about(run) for run in read],
            "verdict": verdict_of_runs(read, others),
            "together": _together(read, output, others) if len(read) > 1 else None,
            "drawn_alike": repeated_draws.lines([Entry(run.path, run.manifest) for run in read]),
            "levels": run_tables.levels(over_runs.curves(read)),
            "windows": run_tables.windows(read),
            "variation": run_tables.variation(read),
            "loads": run_tables.loads(read),
            "schedules": [line for run in read for line in schedules.generator_lines(run)],
            "collectives": run_tables.collectives(read),
            "captures": run_tables.captures(read),
            "fabric": [one for one in _of_fabric(read) if one.rows],
            "scales": sorted({run.scale for run in read}),
            "dilations": sorted({run.manifest.dilation for run in read}),
            "emulated": any("emulated" in (job.compute or "").lower() for run in read for job in run.manifest.jobs),
            **_pictures(read, folder),
            **_of_one(read, folder),
        },
    )


def _of_fabric(runs: Sequence[Run]) -> list[Table]:
    found = [fabric.events(runs), fabric.collisions(runs), fabric.links(runs)]
    return [*found, fabric.paths(runs[0])] if len(runs) == 1 else found


def _title(runs: Sequence[Run]) -> str:
    names = list(dict.fromkeys(run.manifest.experiment for run in runs))
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _about(run: Run) -> page.Values:
    """Return gates and provenance of a run for the template."""
    launches = run.manifest.launches
    return {
        "id": run.id,
        "name": run.name,
        "state": verdict_of_run(run).state,
        "gates": run_tables.gates(run),
        "processors": run_tables.processors(run),
        "failed": [f"{launch.name} on {launch.node}: {launch.failed}" for launch in launches if launch.failed],
        "notes": list(run.manifest.notes),
        "provenance": run_tables.provenance(run),
        "nodes": run_tables.nodes(run),
    }


def _together(runs: Sequence[Run], output: Path, others: Sequence[Summary]) -> Table:
    """Return a row for each of several runs: whether it counts, and its own report or how that is made."""
    every = [*others, *(run.manifest for run in runs)]
    rows = []
    for run in runs:
        own = run.path.parent / page.report_name(run.id)
        made = own.is_file() and own.resolve() != output.resolve()
        link = quote(os.path.relpath(own.resolve(), output.resolve().parent)) if made else ""
        found = verdict_of_run(run, every)
        valid = sum(window.valid for window in run.windows)
        why = found.lines[0] if found.lines else ""
        rows.append(
            [
                run.name,
                run.id,
                Cell(found.word, look={"valid": "good", "doubt": "open"}.get(found.state, "bad")),
                f"{valid} of {len(run.windows)}",
                why if len(why) <= _MOST_WHY else f"{why[:_MOST_WHY].rsplit(' ', 1)[0]} ...",
                Cell("its report" if made else f"orch report {run.id}", link=link),
            ]
        )
    heads = ["run", "id", "verdict", "valid windows", "why not", "by itself"]
    return table("Runs", heads, rows, caption="Figures of traffic, queues and sockets are in the report of each run.")


def _pictures(runs: Sequence[Run], folder: Path) -> page.Values:
    """Draw the figure that the page opens with, those of the training, and those of traffic and hosts."""
    pictures = draw_all(runs, folder)
    rest = pictures[1:]
    of_training = [picture for picture in rest if picture.name in OF_RUNS]
    return {
        "lead": pictures[0] if pictures else None,
        "of_training": of_training,
        "of_network": [picture for picture in rest if picture not in of_training],
    }


def _of_one(runs: Sequence[Run], folder: Path) -> page.Values:
    """Return what only the report of a single run has: its timeline, and its captured traffic."""
    if len(runs) > 1:
        return {"timeline": "", "traffic": "", "causes": ()}
    (run,) = runs
    views = list(run.views.items())
    return {
        "causes": _causes(run),
        "timeline": timeline.write(run, folder / "timeline.json.gz").name,
        "traffic": traffic_section.section(views, scale=run.scale) if views else "",
    }


def _causes(run: Run) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return what made iterations slow: window and job, cause with its share, and the evidence."""
    found = stored.findings(run.rows("causes"))
    return [(where, words.headline(finding), finding.evidence) for where, finding in found]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The verdict at the head of a page.

    Its `state` chooses the colour. `lines` are read first, `more` is folded below a line that says what it holds.
    """

    state: str
    title: str
    lines: tuple[str, ...] = ()
    more: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def word(self) -> str:
        """The verdict in one word."""
        return "repeated" if self.state == "doubt" else self.state


def verdict_of_run(run: Run, others: Sequence[Summary] = ()) -> Verdict:
    """Return the verdict on a run; of one whose windows `others` measured again, where to look instead."""
    manifest = run.manifest
    reasons = list(manifest.reasons)
    if manifest.error:
        reasons.insert(0, f"at stage {manifest.stage or '?'}: {manifest.error}")
    if not reasons:
        reasons = [f"{window.name}: {why}" for window in run.windows for why in window.reasons]
    doubts = tuple(
        f"{window.name}: {gate.message}"
        for window in run.windows
        for gate in window.gates
        if gate.passed is None and gate.required
    )
    more = (
        (_count(len(reasons) - _MOST_OPEN, "more reason"), tuple(reasons[_MOST_OPEN:])),
        (f"{_count(len(doubts), 'gate')} could not be judged", doubts),
    )
    state = "valid" if manifest.valid else "invalid"
    title = "Valid" if manifest.valid else INVALID
    if manifest.outcome != "completed":
        state, title = manifest.outcome, _TITLES[manifest.outcome]
    lines = tuple(reasons[:_MOST_OPEN])
    bad = [one for one in attempts([manifest], others) if not one.valid]
    if bad and all(one.again for one in bad):
        state, title = "doubt", "Measured again: use the runs that count"
        lines = (*(f"{one.window or 'the run'} was measured again in {one.again}" for one in bad), *lines)
    return Verdict(state=state, title=title, lines=lines, more=tuple(one for one in more if one[1]))


def verdict_of_runs(runs: Sequence[Run], others: Sequence[Summary] = ()) -> Verdict:
    """Return the verdict on runs together, measurement by measurement: a window that was measured again is no loss."""
    if len(runs) == 1:
        return verdict_of_run(runs[0], others)
    names = {run.id: run.name for run in runs}
    mine = attempts([run.manifest for run in runs], others)
    points = {one.point for one in mine if one.window}
    lost = [one for one in mine if not one.valid and not one.again]
    again = [one for one in mine if one.again]
    empty = points - {one.point for one in mine if one.valid or one.again}
    state, title = "valid", "Valid"
    if lost:
        state, title = "doubt", "Valid at every point, but not in every run"
    if empty or not points:
        state, title = "invalid", INVALID
        if len(empty) < len(points):
            title = f"INVALID in part: no valid window at {len(empty)} of {_count(len(points), 'point')}"
    more = (
        (f"{_count(len(again), 'measurement')} repeated, since the first try was not valid", again),
        (f"{_count(len(lost), 'measurement')} not valid, and part of no level over runs", lost),
    )
    return Verdict(
        state=state,
        title=title,
        lines=tuple(_valid_ones(mine, points)),
        more=tuple((what, tuple(_told(one, names) for one in found)) for what, found in more if found),
    )


def _valid_ones(mine: Sequence[Attempt], points: Collection[Key]) -> Iterator[str]:
    """Yield a sentence on how many measurements are valid, together and of each point.

    What was valid in several runs, as of an experiment that was run several times, is as many measurements.
    """
    shown = [one for one in mine if one.window]
    valid = {
        (one.point, one.measurement, one.run if one.valid else one.again) for one in shown if one.valid or one.again
    }
    lost = {one.measurement for one in shown if not one.valid and not one.again}
    counts = sorted(sum(of == point for of, *_ in valid) for point in points)
    if counts:
        least, most = counts[0], counts[-1]
        each = f": {len(points)} points with {least if least == most else f'{least} to {most}'} each"
        yield f"{len(valid)} of {_count(len(valid) + len(lost), 'measurement')} valid{each if len(points) > 1 else ''}"


def _told(one: Attempt, names: Mapping[str, str]) -> str:
    where = ", ".join(filter(None, (names[one.run], one.window)))
    again = f" (measured again in {names.get(one.again, one.again)})" if one.again else ""
    return f"{where}: {'; '.join(one.why) or 'not measured'}{again}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
