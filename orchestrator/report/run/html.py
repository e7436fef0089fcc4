"""Builds the report: one self-contained HTML page about one or more sealed runs, and its figures beside it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from orchestrator.core.errors import StoreError
from orchestrator.report import page
from orchestrator.report.run import drawn_from, origin, over_runs, run_tables, timeline, verdict
from orchestrator.report.run.figures import OF_RUNS, draw_all
from orchestrator.report.runs import Run, load
from orchestrator.report.tables import Cell, Table, table
from orchestrator.report.traffic import trafficview
from orchestrator.store.manifests.records import Summary

_MOST_WHY = 160  # letters of why a run is not valid, in the list of several runs; its own report has all


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
        "report.html",
        output,
        lambda folder: {
            "title": _title(read),
            "runs": [_about(run) for run in read],
            "verdict": verdict.of_runs(read, others),
            "together": _together(read, output, others) if len(read) > 1 else None,
            "levels": run_tables.levels(over_runs.curves(read)),
            "windows": run_tables.windows(read),
            "variation": run_tables.variation(read),
            "loads": run_tables.loads(read),
            "schedules": [line for run in read for line in drawn_from.told(run)],
            "collectives": run_tables.collectives(read),
            "captures": run_tables.captures(read),
            "scales": sorted({run.scale for run in read}),
            "emulated": any("emulated" in (job.compute or "").lower() for run in read for job in run.manifest.jobs),
            **_pictures(read, folder),
            **_of_one(read, folder),
        },
    )


def _title(runs: Sequence[Run]) -> str:
    names = list(dict.fromkeys(run.manifest.experiment for run in runs))
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _about(run: Run) -> page.Values:
    """Gates and provenance of a run."""
    launches = run.manifest.launches
    return {
        "id": run.id,
        "name": run.name,
        "state": verdict.of_run(run).state,
        "gates": run_tables.gates(run),
        "processors": run_tables.processors(run),
        "failed": [f"{launch.name} on {launch.node}: {launch.failed}" for launch in launches if launch.failed],
        "notes": list(run.manifest.notes),
        "provenance": origin.provenance(run),
        "nodes": run_tables.nodes(run),
    }


def _together(runs: Sequence[Run], output: Path, others: Sequence[Summary]) -> Table:
    """A row for each of several runs: whether it counts, and its own report or how that is made."""
    every = [*others, *(run.manifest for run in runs)]
    rows = []
    for run in runs:
        own = run.path.parent / page.report_name(run.id)
        made = own.is_file() and own.resolve() != output.resolve()
        link = quote(os.path.relpath(own.resolve(), output.resolve().parent)) if made else ""
        found = verdict.of_run(run, every)
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
    """The figure that the page opens with, those of the training, and those of traffic and hosts."""
    pictures = draw_all(runs, folder)
    rest = pictures[1:]
    of_training = [picture for picture in rest if picture.name in OF_RUNS]
    return {
        "lead": pictures[0] if pictures else None,
        "of_training": of_training,
        "of_network": [picture for picture in rest if picture not in of_training],
    }


def _of_one(runs: Sequence[Run], folder: Path) -> page.Values:
    """What only the report of a single run has: its timeline, and its captured traffic."""
    if len(runs) > 1:
        return {"timeline": "", "traffic": ""}
    (run,) = runs
    views = list(run.views.items())
    return {
        "timeline": timeline.write(run, folder / "timeline.json.gz").name,
        "traffic": trafficview.section(views, scale=run.scale) if views else "",
    }
