"""Tables of training's own view of traffic, as a part of a page."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from orchestrator.analysis.stats.statistics import Estimate
from orchestrator.analysis.traffic import view
from orchestrator.analysis.traffic.bottleneck import Rates
from orchestrator.analysis.traffic.pattern import Pattern
from orchestrator.analysis.traffic.traffic import CROSS, TRAINING
from orchestrator.analysis.traffic.view import JobView, View
from orchestrator.core.units import span_text
from orchestrator.report import page
from orchestrator.report.quantities import percent, rate, size
from orchestrator.report.tables import Cell, Number, Table, table
from orchestrator.report.traffic.trafficfigures import called

_JOBS = """Read off the captured bytes alone. The pattern's score is from 0 to 1: the share of the bytes that the
pattern explains, lowered where an edge of it is weak. Iterations by the autocorrelation of the payload's rate, cut
at its longest silences."""
_KINDS = "All captured traffic; a flow is a 5-tuple in one direction, each counted at one place; layer 2."
_RATES = [Number("mean"), Number("sending"), Number("peak")]
_THROUGHPUT = """Throughput, layer 2, with 95 % confidence intervals by batch means; sending: mean while anything is
sent; peak: highest {step}, which is above a link's rate by what its token bucket lets through at once, where one
sets the rate."""


def section(views: Sequence[tuple[str, View]], *, scale: int = 1) -> str:
    """The tables of some stretches of traffic as HTML; a stretch is told by its place where there are several."""
    tables = [made(views, scale) for made in (_jobs, _kinds, _flows, _shares)]
    return page.fill("traffic.html", tables=tables)


def _places(views: Sequence[tuple[str, View]]) -> list[tuple[str, View]]:
    """The same, with no place where there is but one."""
    return [(place if len(views) > 1 else "", one) for place, one in views]


def _jobs(views: Sequence[tuple[str, View]], scale: int) -> Table:
    heads = [
        "window",
        "job",
        "communication pattern",
        Number("iteration"),
        Number("by its own log"),
        Number("sending"),
        Number("bytes an iteration, all hosts"),
    ]
    rows = [[place, *_job(one, job, scale)] for place, one in _places(views) for job in one.jobs]
    return table("Trainings, as their traffic shows them", heads, rows, caption=_JOBS)


def _job(one: View, job: JobView, scale: int) -> Iterator[str]:
    seen = job.iterations
    found = seen.period.found
    seconds = float(seen.seconds.mean()) if len(seen.seconds) else seen.period.period_s
    yield job.name or called(TRAINING, one.traffic)
    patterns = "; ".join(pattern_text(pattern, one.traffic.hosts) for pattern in job.patterns)
    yield Cell(patterns or "none seen", notes=(job.order,))
    strength = f"{len(seen.starts_ns)} seen, correlation {seen.period.strength:.2f}"
    yield Cell(span_text(seconds) if found else "none found", notes=(strength,))
    off = percent(seconds / job.logged_s - 1) if found and job.logged else "?"
    yield Cell(span_text(job.logged_s), notes=(f"{job.logged}, off by {off}",)) if job.logged else "no log"
    yield "" if math.isnan(seen.duty) else Cell(f"{seen.duty:.0%}", notes=("of the time",))
    yield _estimate(seen.amount, scale, size, unknown="unknown")


def _kinds(views: Sequence[tuple[str, View]], scale: int) -> Table:
    rows = [
        [place, called(row.kind, one.traffic), f"{row.flows:,}", size(row.wire_bytes * scale), f"{row.share:.2%}"]
        for place, one in _places(views)
        for row in one.kinds
        if row.flows
    ]
    heads = ["window", "kind", Number("flows"), Number("bytes"), Number("share")]
    return table("Captured traffic by kind", heads, rows, caption=_KINDS)


def _flows(views: Sequence[tuple[str, View]], scale: int) -> Table:
    """Of every training as a whole, and of the biggest flows of the first stretch."""
    rows: list[list[str]] = [
        [
            "everything of " + (job.name or called(TRAINING, one.traffic)) + (f", {place}" if place else ""),
            "training",
            "",
            "",
            *_rates(job.total, scale),
        ]
        for place, one in _places(views)
        for job in one.jobs
    ]
    caption = _THROUGHPUT.format(step=f"{view.STEP_NS / 1e6:.0f} ms")
    for place, one in views[:1]:
        rows += [
            [
                row.label,
                called(row.kind, one.traffic) + (f", {row.name}" if row.name and row.name != row.kind else ""),
                size(row.wire_bytes * scale),
                f"{row.share:.1%}",
                *_rates(row.rates, scale),
            ]
            for row in one.flows
        ]
        if one.flows:
            where = f" in {place}" if len(views) > 1 else ""
            biggest = ", of which the biggest are here" if len(one.big) > len(one.flows) else ""
            seen = int((one.traffic.wire_bytes > 0).sum())
            caption += f" {len(one.big)} of {seen} flows carry 99 % of the bytes{where}{biggest}."
    heads = ["of", "kind", Number("bytes"), Number("share"), *_RATES]
    return table("Throughput", heads, rows, caption=caption)


def _shares(views: Sequence[tuple[str, View]], scale: int) -> Table:
    rows = [
        [place, share.label, *_rates(rates, scale)]
        for place, one in _places(views)
        for share, rates in zip(one.shares, one.share_rates, strict=True)
    ]
    cross = called(CROSS, views[0][1].traffic) if views else ""
    caption = f"The link that training and {cross} share most, beside training on a link of its own; rates as above."
    return table("Shared and own links", ["window", "flow", *_RATES], rows, caption=caption)


def pattern_text(pattern: Pattern, hosts: Sequence[str]) -> str:
    """A pattern in words, with how well it fits and what comes next."""
    names = [hosts[host] for host in pattern.hosts]
    after = f"; next {pattern.runner_up} {pattern.runner_up_score:.2f}" if pattern.runner_up else ""
    if pattern.shape == "unknown":
        return f"unknown: {pattern.same_as[0]} fits best, {pattern.score:.2f}{after}"
    who = {
        "ring": " → ".join([*names, names[0]]),
        "ring both ways": " ↔ ".join([*names, names[0]]),
        "chain": " ↔ ".join(names),
        "pair": " ↔ ".join(names),
        "full mesh": ", ".join(names),
    }.get(pattern.shape, f"{', '.join(names[: pattern.heads])} with {', '.join(names[pattern.heads :])}")
    same = f" (or {' or '.join(pattern.same_as)}: bytes cannot tell)" if pattern.same_as else ""
    return f"{pattern.shape}{same}: {who}; score {pattern.score:.2f}{after}"


def _rates(rates: Rates, scale: int) -> tuple[Cell, str, str]:
    return _estimate(rates.mean, scale, rate, unknown="none"), rate(rates.sending * scale), rate(rates.peak * scale)


def _estimate(estimate: Estimate, scale: int, text: Callable[[float], str], *, unknown: str) -> Cell:
    bounds = [text(bound * scale) for bound in (estimate.low, estimate.high)]
    interval = " to ".join(bounds) if all(bounds) else "unknown"
    return Cell(text(estimate.value * scale) or unknown, notes=(interval,))
