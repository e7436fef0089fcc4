"""The page that shows measured curves beside those of Salamy's thesis: every figure and table, and the difference."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orchestrator.analysis.compare import curves, freshruns
from orchestrator.analysis.published import Salamy, salamy
from orchestrator.core.errors import StoreError
from orchestrator.report import page
from orchestrator.report.study import study_causes, study_figures, study_flows, study_model, study_tables
from orchestrator.report.study.study_text import Table
from orchestrator.store.rundir import Entry


def render(entries: Sequence[Entry], output: Path) -> Path:
    """Write the page of these runs, its figures into `<output's stem>-figures` beside it; StoreError when it cannot."""
    measured = curves.measured(entries)
    if not measured:
        raise StoreError("no curve to show: none of these runs has a valid window with one job", hint="orch ls")
    printed = salamy()
    found = [study_model.analysed(series) for series in measured]
    places = [place for entry in entries for place in curves.places(entry) if not place.recheck]
    flows = study_flows.seen(places, printed)
    return page.write("study.html", output, lambda folder: {
        "title": "Training beside cross traffic, and what is published",
        "source": printed.title,
        "curves": [one.series.kind.name for one in found],
        "scales": sorted({scale for one in found for scale in one.series.scales}),
        "emulated": any(one.series.emulated for one in found),
        "tcp": any(one.series.kind.transport == "tcp" for one in found),
        "stayed": sum(len(entry.manifest.windows) > 1 for entry in entries),
        "verdicts": study_causes.verdicts(found, printed),
        "pictures": [*study_figures.draw(found, printed, folder), *study_flows.draw(flows, folder)],
        "tables": tables(found, printed, study_flows.table(flows), study_flows.bursts(places, printed),
                         study_causes.same(freshruns.checks(entries))),
        "notes": [f"{p.model}, {p.traffic} at {p.load_gbps:g} Gbit/s: {p.note}" for p in printed.points if p.note],
    })  # fmt: skip


def tables(found: Sequence[study_model.Analysed], printed: Salamy, *more: Table) -> list[Table]:
    """Every table of the page that has a row; `more` stand last."""
    made = [
        study_tables.baseline(found, printed), study_tables.points(found, printed), study_causes.causes(found, printed),
        study_causes.order(found, printed), study_tables.fits(found, printed), study_tables.congestion(found, printed),
        study_tables.most_congested(found, printed), study_tables.spare(found, printed),
        study_tables.transports(found, printed), *more,
    ]  # fmt: skip
    return [table for table in made if table[3]]
