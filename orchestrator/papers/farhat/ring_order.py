"""The topology between workers: the ring in captures against the order in which workers were launched."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.analysis.traffic.pattern import AGAINST_ORDER, IN_ORDER
from orchestrator.papers.farhat.published import Farhat
from orchestrator.papers.farhat.trainings import LIBRARIES, Ring, Training
from orchestrator.report.study.content import NOTHING, Comparison, Rows, Section, Table, counted, remark

TITLE = "Ring of the workers against the launch order"


def section(found: Sequence[Training], printed: Farhat) -> Section:
    """Compare, by library, whether all captured windows are rings of the launch order, and which way they turn."""
    workers = printed.count("workers")
    by_library = {name: [one for one in found if one.controller == name] for name in LIBRARIES}
    return Section(
        title=TITLE,
        text=(
            "The ring is the closed way through all workers along which payload travels, whatever they are called; it "
            "is recovered from the matrix of bytes alone. The paper does not say which way its ring turns."
        ),
        comparisons=(
            remark(
                "workers",
                str(max(one.workers for one in found)),
                str(workers.value),
                source=workers.source,
                why="it is set, and not measured",
            ),
            *(judge(LIBRARIES[name], mine, printed) for name, mine in by_library.items()),
        ),
        tables=(_table(by_library),),
    )


def judge(library: str, mine: Sequence[Training], printed: Farhat) -> Comparison:
    """Judge whether over a library workers are next to each other in the ring as they were launched, in every run."""
    finding = printed.finding("ring")
    rings = [ring for one in mine for ring in one.rings]
    ways = sorted({ring.order or f"no ring: {ring.shape}" for ring in rings})
    return counted(
        printed.check("ring"),
        library,
        [_in_order(one) for one in mine],
        ours="; ".join(ways),
        printed=finding.text,
        source=finding.source,
    )


def _in_order(one: Training) -> list[bool]:
    """Return by run whether every window is a ring of the launch order."""
    by_run: dict[str, list[bool]] = {}
    for ring in one.rings:
        by_run.setdefault(ring.run, []).append(ring.order in (IN_ORDER, AGAINST_ORDER))
    return [all(found) for found in by_run.values()]


def _table(by_library: dict[str, list[Training]]) -> Table:
    rows: Rows = [
        (
            LIBRARIES[library],
            " ".join(launched),
            " → ".join(ring.hosts) if ring.order else NOTHING,
            f"{ring.score:.2f}",
            _back(ring),
            ring.order or f"no ring: {ring.shape}",
            str(count),
        )
        for library, mine in by_library.items()
        for (launched, ring), count in _alike(mine)
    ]
    caption = (
        "Score: share of the bytes on the ring's edges, lowered where an edge is missing or weak. Back: payload on the "
        "same edges the other way, as a share of the ring's, the highest of the windows."
    )
    head = ("library", "launched", "ring as captured", "score", "back", "direction", "windows")
    return Table(TITLE, caption, head, rows)


def _back(ring: Ring) -> str:
    return f"{ring.reverse:.2%}"


def _alike(mine: Sequence[Training]) -> list[tuple[tuple[tuple[str, ...], Ring], int]]:
    """Group windows of the same launch order and ring: the one with most payload backwards, and their number."""
    groups: dict[tuple[tuple[str, ...], ...], list[Ring]] = {}
    for one in mine:
        for ring in one.rings:
            groups.setdefault((one.launched, ring.hosts, (ring.shape, ring.order)), []).append(ring)
    return [((key[0], max(rings, key=lambda ring: ring.reverse)), len(rings)) for key, rings in groups.items()]
