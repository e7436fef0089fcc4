"""Compare fits, congestion points, most congested points and spare capacity with the printed ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from orchestrator.analysis.compare.curves import NO_TRAFFIC
from orchestrator.analysis.stats.statistics import Estimate
from orchestrator.analysis.traffic import congestion
from orchestrator.papers.salamy import tables
from orchestrator.papers.salamy.published import Salamy
from orchestrator.report.study.content import Comparison, Section, Table, apart, judged, not_measured, number

if TYPE_CHECKING:
    from orchestrator.papers.salamy.model import Analysed

RISES = "whatever grows with the load has a high R2: the form is judged against others"
TRANSPORT = "printed over another transport"
BY_EYE = "the thesis draws its tangents by eye"
HIGHEST = "at the highest load of each curve, which is not the same"
UNUSED = "a scale model leaves less of the link unused: packets, round trips and time-outs do not scale"


def sections(found: Sequence[Analysed], printed: Salamy) -> tuple[Section, ...]:
    """Return a section each, whose table has ours in full."""
    loaded = [one for one in found if one.series.kind.traffic != NO_TRAFFIC]
    return (
        _section(tables.fits(found, printed), _fits(loaded, printed)),
        _section(tables.congestion(found, printed), _congestion(loaded, printed)),
        _section(tables.most_congested(found, printed), _most_congested(loaded, printed)),
        _section(tables.spare(found, printed), _spare(loaded, printed)),
    )


def _section(table: Table, comparisons: Iterator[Comparison]) -> Section:
    return Section(title=table.title, comparisons=tuple(comparisons), tables=(table,))


def _fits(found: Sequence[Analysed], printed: Salamy) -> Iterator[Comparison]:
    for one in found:
        kind = one.series.kind
        for theirs in printed.fits:
            ours = next((fit for fit in one.candidates if fit.n == theirs.n and fit.n_interval is None), None)
            if (theirs.model, theirs.traffic) != (kind.model, kind.traffic) or ours is None:
                continue
            name = f"{kind.model}, {kind.traffic}, n {theirs.n:g}, over {kind.transport} (printed: {theirs.transport})"
            repeated = len(one.part.runs) > 0 and min(map(len, one.part.runs)) > 1
            a, b = Estimate(ours.a_s, *ours.a_interval_s), Estimate(ours.b, *ours.b_interval)
            for letter, value, given, unit in (("A", a, theirs.a_s, "s"), ("B", b, theirs.b, "")):
                what, mine = f"{letter} of {name}", value if repeated else Estimate(value.value, math.nan, math.nan)
                if kind.transport == theirs.transport:
                    check = printed.check(letter)
                    yield judged(check, what, mine, given, unit=unit, source=theirs.source)
                else:
                    yield apart(what, mine, given, unit=unit, source=theirs.source, why=TRANSPORT)
            if theirs.r2 is not None:
                yield apart(f"R2 of {name}", ours.r2, theirs.r2, source=theirs.source, why=RISES)


def _congestion(found: Sequence[Analysed], printed: Salamy) -> Iterator[Comparison]:
    for one in found:
        kind, onset = one.series.kind, one.point.onset
        for theirs in printed.congestion_points:
            if (theirs.model, theirs.traffic) != (kind.model, kind.traffic):
                continue
            why = BY_EYE if onset else one.point.why
            name = f"{kind.model}, {kind.traffic}"
            if theirs.load_gbps is not None:
                at = onset.load_bps / 1e9 if onset else math.nan
                yield _known(f"load, {name}", at, theirs.load_gbps, unit="Gbit/s", source=theirs.source, why=why)
            over = 100 * (onset.volume_bytes / one.series.theory_bytes - 1) if onset else math.nan
            yield _known(
                f"volume over theory, {name}", over, theirs.over_theory_pct, unit="%", source=theirs.source, why=why
            )


def _most_congested(found: Sequence[Analysed], printed: Salamy) -> Iterator[Comparison]:
    for one in found:
        kind, ours = one.series.kind, congestion.most_congested(one.series.curve)
        for theirs in printed.most_congested:
            if (theirs.model, theirs.traffic) == (kind.model, kind.traffic) and ours is not None:
                at = printed.capacity_gbps - theirs.used_gbps
                loads = f"{ours.load_bps / 1e9:.2f} (printed: {at:.2f}) Gbit/s"
                what = f"needed of what {loads} leave, {kind.model}, {kind.traffic}"
                yield apart(
                    what,
                    100 * ours.needed_bps / ours.used_bps,
                    100 * theirs.needed_gbps / theirs.used_gbps,
                    unit="%",
                    source=theirs.source,
                    why=HIGHEST,
                )


def _spare(found: Sequence[Analysed], printed: Salamy) -> Iterator[Comparison]:
    for one in found:
        kind = one.series.kind
        ours = congestion.spare_bps(one.series.curve, one.point, up_to_bps=tables.HEAVY_SHARE * one.series.capacity_bps)
        for theirs in printed.spare_capacity:
            if (theirs.model, theirs.traffic) == (kind.model, kind.traffic):
                yield _known(
                    f"{kind.model}, {kind.traffic}",
                    ours / 1e9,
                    theirs.spare_gbps,
                    unit="Gbit/s",
                    source=theirs.source,
                    why=UNUSED,
                )


def _known(what: str, ours: float, theirs: float, *, unit: str, source: str, why: str) -> Comparison:
    """Compare both, or show the printed one alone with the reason why there is no other."""
    if math.isnan(ours):
        return not_measured(what, f"{number(theirs)} {unit}", source=source, why=why)
    return apart(what, ours, theirs, unit=unit, source=source, why=why)
