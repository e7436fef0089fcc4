"""Build the page that compares measured curves with those of Salamy's thesis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from orchestrator.analysis.compare import curves
from orchestrator.core.errors import StoreError
from orchestrator.papers.salamy import (
    causes,
    differences,
    figures,
    fitfigures,
    flows,
    form,
    headline,
    injection,
    logicalview,
    model,
    tables,
)
from orchestrator.papers.salamy.model import Analysed
from orchestrator.papers.salamy.published import Salamy, salamy
from orchestrator.report.study.content import Content, Section
from orchestrator.store.rundir import Entry


def content(entries: Sequence[Entry], folder: Path) -> Content:
    """Return all sections of these runs; StoreError when none of them has a curve."""
    measured = curves.measured(entries)
    if not measured:
        raise StoreError("no curve to show: none of these runs has a valid window with one job", hint="orch ls")
    printed = salamy()
    found = [model.analysed(series) for series in measured]
    places = [place for entry in entries for place in curves.loaded_windows(entry) if not place.recheck]
    seen = flows.seen(places, printed)
    pictures = [
        *figures.draw(found, printed, folder),
        *fitfigures.draw(found, folder),
        *logicalview.draw(seen, folder),
        *flows.draw(seen, folder),
        *injection.draw(injection.samples(places), folder),
    ]
    return Content(
        made_of=f"{len(found)} curves: {', '.join(one.series.kind.name for one in found)}",
        sections=(
            tables.points(found, printed),
            form.section(found, printed),
            *headline.sections(found, printed),
            *differences.sections(found, printed),
            causes.order(found, printed),
            *(Section(title=picture.title, pictures=(picture,)) for picture in pictures),
            *(
                Section(title=table.title, tables=(table,))
                for table in (
                    tables.baseline(found, printed),
                    causes.causes(found, printed),
                    tables.transports(found, printed),
                    flows.table(seen),
                    flows.bursts(places, printed),
                    causes.same(curves.checks(entries)),
                )
            ),
        ),
        limits=tuple(_limits(found, stayed=sum(len(entry.manifest.windows) > 1 for entry in entries))),
        contradictions=tuple(_contradictions(printed)),
    )


def _limits(found: Sequence[Analysed], *, stayed: int) -> Iterator[str]:
    """Return what cannot be compared, and why; `stayed` counts runs with several windows."""
    scales = sorted({scale for one in found for scale in one.series.scales})
    if scales != [1]:
        yield (
            f"Rates and sizes were divided by {' and '.join(map(str, scales))} and are multiplied back here; durations "
            "are as measured, those of dilated runs divided back. "
            "Packets, round-trip times, retransmission time-outs, switch buffers and the cost of a "
            "packet to a processor do not scale: a packet of 1,500 bytes lasts as many times longer on the link as the "
            "scale says, and so a burst of a millisecond holds fewer of them."
        )
    if any(one.series.emulated for one in found):
        yield (
            "Compute was emulated: forward and backward passes wait for a time that was fitted to the printed "
            "iteration without cross traffic. That these agree shows nothing; everything under load was not fitted."
        )
    if any(one.series.kind.transport == "tcp" for one in found):
        yield (
            "Gradients went over TCP here. The thesis sent them by Horovod over RDMA, except where its transport says "
            "TCP. Where both compete with TCP cross traffic, shares of the link differ."
        )
    if stayed:
        yield (
            f"Ranks stayed up while windows of different traffic followed one another, in {stayed} runs. The last "
            "table holds windows against fresh runs."
        )
    yield "A 99th percentile of fewer than a hundred iterations is their maximum."
    yield (
        "Means under heavy load spread widely in the thesis, too (39 % under bursts), and it drew congestion points by "
        "eye."
    )


def _contradictions(printed: Salamy) -> Iterator[str]:
    for point in printed.points:
        if point.note:
            yield f"{point.model}, {point.traffic} at {point.load_gbps:g} Gbit/s: {point.note}"
