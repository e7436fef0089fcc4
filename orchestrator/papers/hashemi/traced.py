"""Fig 1: a distributed trace, and the order in which tensors arrive."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orchestrator.analysis.compare.points import MeasuredPoint, where
from orchestrator.papers.hashemi.published import Hashemi
from orchestrator.report.runs import Run
from orchestrator.report.study import content
from orchestrator.report.study.content import Comparison, Section
from orchestrator.report.style import SERIES, SOFT, Picture, figure, legend, look, save
from orchestrator.report.traces import activity
from orchestrator.report.traces.activity import COMPUTE, Activity, RankActivities

_SHOWN = 2  # iterations
_COLORS = {"forward": SERIES[0], "backward": SERIES[5], "receive": SERIES[1], "send": SERIES[2]}
_TENSORFLOW = "TensorFlow's parameter server"
_TRACES = {
    _TENSORFLOW: {"workload.tensorflow.strategy": "parameter-server"},
    "pulls in random orders": {"workload.p2p.order": "random"},
    "pulls in TAC's order": {"workload.p2p.order": "tac"},
}
_SOURCE = "Fig 1, accomplishment 2"


def section(points: Sequence[MeasuredPoint], printed: Hashemi, folder: Path) -> Section:
    """Compare two iterations of every rank of traced runs, and whether TensorFlow's transfers are in the trace."""
    pictures = []
    for name, settings in _TRACES.items():
        run = _traced(where(points, settings))
        if run is None:
            continue
        ranks = [rank for rank in activity.of_run(run) if rank.activities]
        pictures.append(_drawn(ranks, name, folder))
    runs = [window.entry.path for point in where(points, _TRACES[_TENSORFLOW]) for window in point.windows]
    found = [[_moved(rank) for rank in activity.of_run(Run(path)) if rank.activities] for path in dict.fromkeys(runs)]
    return Section(
        title="Fig 1: a distributed trace",
        text="orch timeline writes the whole of it for ui.perfetto.dev, orch export kineto and chakra for other tools.",
        pictures=tuple(pictures),
        comparisons=(compared(found, printed),),
    )


def compared(found: Sequence[Sequence[tuple[int, int, int]]], printed: Hashemi) -> Comparison:
    """Compare whether every rank of every run recorded transfers; `found` has what `_moved` says of each."""
    told = (
        f"{receives} receives and {sends} sends of a worker, receives in {orders} orders"
        for receives, sends, orders in (found[0] if found else ())
    )
    return content.counted(
        printed.check("traced"),
        "transfers of TensorFlow",
        [[bool(ranks) and all(receives and sends for receives, sends, _ in ranks) for ranks in found]],
        ours="; ".join(told),
        printed="transfers of a distributed TensorFlow are recorded and shown",
        source=_SOURCE,
    )


def _traced(points: Sequence[MeasuredPoint]) -> Run | None:
    """Return the first of these runs whose ranks recorded what they sent and received."""
    for window in (window for point in points for window in point.windows):
        run = Run(window.entry.path)
        if {"send", "receive"} <= set(run.table("spans")["span"].unique().to_pylist()):
            return run
    return None


def _moved(rank: RankActivities) -> tuple[int, int, int]:
    """Return receives and sends of a rank, and in how many orders its iterations received."""
    received: dict[int, list[str]] = {}
    for one in rank.activities:
        if one.name == "receive":
            received.setdefault(one.iteration, []).append(one.what)
    sends = sum(one.name == "send" for one in rank.activities)
    return sum(map(len, received.values())), sends, len(set(map(tuple, received.values())))


def _drawn(ranks: Sequence[RankActivities], name: str, folder: Path) -> Picture:
    stem = re.sub(r"\W+", "-", name.lower())
    numbers = sorted({one.iteration for rank in ranks for one in rank.activities})
    last = numbers[len(numbers) // 2 :][:_SHOWN]
    shown = {rank.rank: [one for one in rank.activities if one.iteration in last] for rank in ranks}
    origin = min(one.start_ns for mine in shown.values() for one in mine)
    with look():
        drawing, (panel,) = figure(1, height_in=0.9 + 0.7 * len(ranks))
        labels: list[str] = []
        for rank, mine in shown.items():
            for lane in ("computes", "communicates"):
                chosen = [one for one in mine if (one.lane == COMPUTE) == (lane == "computes")]
                if chosen:
                    _bars(panel, chosen, origin, -len(labels))
                    labels.append(f"rank {rank} {lane}")
        panel.set_yticks([-place for place in range(len(labels))], labels)
        panel.set_xlabel("ms")
        panel.grid(visible=False, axis="y")
        legend(panel)
        saved = save(drawing, folder / f"trace-{stem}")
    title = f"{name}: {_SHOWN} iterations of every rank (beside Fig 1)"
    caption = (
        f"{name[0].upper()}{name[1:]}. Each bar is a pass, or the transfer of a bucket or tensor; transfers at the "
        "same time lie on each other. The rank of a server computes nothing."
    )
    return Picture(name=f"trace-{stem}", title=title, caption=caption, saved=saved)


def _bars(panel: Any, chosen: Sequence[Activity], origin_ns: int, at: int) -> None:
    for name in dict.fromkeys(one.name for one in chosen):
        parts = [
            ((one.start_ns - origin_ns) / 1e6, max(one.end_ns - one.start_ns, 1) / 1e6)
            for one in chosen
            if one.name == name
        ]
        panel.broken_barh(parts, (at - 0.4, 0.8), color=_COLORS.get(name, SOFT), alpha=0.7, linewidth=0.3, label=name)
