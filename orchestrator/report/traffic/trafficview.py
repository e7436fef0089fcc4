"""Tables of training's own view of traffic, as a part of a page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from orchestrator.analysis.stats.statistics import Estimate
from orchestrator.analysis.traffic import view
from orchestrator.analysis.traffic.bottleneck import Rates
from orchestrator.analysis.traffic.pattern import Pattern
from orchestrator.analysis.traffic.traffic import CROSS, TRAINING
from orchestrator.analysis.traffic.view import JobView, View
from orchestrator.core.units import span_text
from orchestrator.report import page
from orchestrator.report.quantities import percent, rate, size
from orchestrator.report.traffic.trafficfigures import called


def section(views: Sequence[tuple[str, View]], *, scale: int = 1, title: str = "") -> str:
    """The tables of some stretches of traffic as HTML; `title` tells several runs apart."""
    return page.fill(
        "traffic.html",
        title=title,
        several=len(views) > 1,
        jobs=[row for place, one in views for row in _jobs(place, one, scale)],
        kinds=[row for place, one in views for row in _kinds(place, one, scale)],
        flows=[row for place, one in views[:1] for row in _flows(one, scale)],
        first=views[0][0] if views else "",
        big=len(views[0][1].big) if views else 0,
        seen=int((views[0][1].traffic.wire_bytes > 0).sum()) if views else 0,
        shares=[row for place, one in views for row in _shares(place, one, scale)],
        step=f"{view.STEP_NS / 1e6:.0f} ms",
        cross=called(CROSS, views[0][1].traffic) if views else "",
    )


def _jobs(place: str, one: View, scale: int) -> Iterator[page.Values]:
    for job in one.jobs:
        yield {
            "place": place,
            "name": job.name or called(TRAINING, one.traffic),
            "patterns": [pattern_text(pattern, one.traffic.hosts) for pattern in job.patterns] or ["none seen"],
            "order": job.order,
            **_iterations(job, scale),
            "rates": _rates(job.total, scale),
        }


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


def _iterations(job: JobView, scale: int) -> page.Values:
    seen = job.iterations
    found = seen.period.found
    seconds = float(seen.seconds.mean()) if len(seen.seconds) else seen.period.period_s
    return {
        "period": span_text(seconds) if found else "none found",
        "strength": f"{seen.period.strength:.2f}",
        "count": len(seen.starts_ns),
        "logged": span_text(job.logged_s) if job.logged else "",
        "logged_count": job.logged,
        "off": percent(seconds / job.logged_s - 1) if found and job.logged else "",
        "duty": "" if math.isnan(seen.duty) else f"{seen.duty:.0%}",
        "amount": _estimate(seen.amount, scale, size),
    }


def _kinds(place: str, one: View, scale: int) -> Iterator[page.Values]:
    for row in one.kinds:
        if row.flows:
            yield {
                "place": place,
                "kind": called(row.kind, one.traffic),
                "flows": f"{row.flows:,}",
                "size": size(row.wire_bytes * scale),
                "share": f"{row.share:.2%}",
            }


def _flows(one: View, scale: int) -> Iterator[page.Values]:
    for row in one.flows:
        yield {
            "label": row.label,
            "kind": called(row.kind, one.traffic) + (f", {row.name}" if row.name and row.name != row.kind else ""),
            "size": size(row.wire_bytes * scale),
            "share": f"{row.share:.1%}",
            "rates": _rates(row.rates, scale),
        }


def _shares(place: str, one: View, scale: int) -> Iterator[page.Values]:
    for share, rates in zip(one.shares, one.share_rates, strict=True):
        yield {"place": place, "label": share.label, "rates": _rates(rates, scale)}


def _rates(rates: Rates, scale: int) -> page.Values:
    return {
        "mean": _estimate(rates.mean, scale, rate),
        "sending": rate(rates.sending * scale),
        "peak": rate(rates.peak * scale),
    }


def _estimate(estimate: Estimate, scale: int, text: Any) -> dict[str, str]:
    bounds = [text(bound * scale) for bound in (estimate.low, estimate.high)]
    return {"value": text(estimate.value * scale), "interval": " to ".join(bounds) if all(bounds) else "unknown"}
