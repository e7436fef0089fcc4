"""Li et al.: where a mapping puts ranks (figures 3 and 12), and the schedule of a pipeline as it ran (figure 9)."""

from __future__ import annotations

from typing import Any

from matplotlib.patches import Rectangle

from orchestrator.questions.messages import runs_of
from orchestrator.questions.registry import source
from orchestrator.questions.rows import Measured, Rows, grouped
from orchestrator.questions.trainings import trainings
from orchestrator.report.style import INK, SERIES, legend
from workloads import ptd

_COLORS = {"forward": 0, "backward": 1, "recompute": 3, "all-reduce": 2, "receive": 4}


@source
def placed(measured: Measured) -> Rows:
    """Return the ranks of the largest split trainings, one of each mapping: machine, place on it, and model part."""
    split = [one for one in trainings(measured) if one.point.job.workload == ptd.NAME]
    most = max((len(one.subject.job.ranks) for one in split), default=0)
    shown = {one.keys["mapping"]: one for one in split if len(one.subject.job.ranks) == most}
    return [
        {
            "training": one.keys["training"],
            "machine": one.subject.job.nodes.index(rank.node),
            "place": rank.local_rank,
            "rank": rank.rank,
            "stage": stage,
            "part": part,
            "replica": replica,
        }
        for one in shown.values()
        for rank, (stage, part, replica) in zip(one.subject.job.ranks, ptd.placed(one.subject.config), strict=True)
    ]


def mapping(rows: Rows, drawing: Any) -> None:
    """Draw each rank in its machine, in the colour of its stage."""
    panels = grouped(rows, ["training"])
    drawing.set_size_inches(drawing.get_size_inches()[0], 2.0 * len(panels))
    for panel, ((training,), mine) in zip(
        drawing.subplots(len(panels), 1, squeeze=False)[:, 0], panels.items(), strict=True
    ):
        for row in mine:
            corner = (row["place"] - 0.45, row["machine"] - 0.42)
            color = SERIES[row["stage"] % len(SERIES)]
            panel.add_patch(Rectangle(corner, 0.9, 0.84, facecolor=color, alpha=0.45, edgecolor="none"))
            text = f"{row['rank']}\nt{row['part']} d{row['replica']}"
            panel.text(row["place"], row["machine"], text, ha="center", va="center", fontsize=6.5, color=INK)
        machines = sorted({row["machine"] for row in mine})
        panel.set(
            xlim=(-0.6, max(row["place"] for row in mine) + 0.6), ylim=(len(machines) - 0.4, -0.6), title=training
        )
        panel.set_yticks(machines, [f"machine {number}" for number in machines])
        panel.set_xticks([])
        panel.grid(visible=False)


@source
def schedule(measured: Measured) -> Rows:
    """Return what one rank of each stage of the deepest pipeline did in an iteration, in ms."""
    split = [one for one in trainings(measured) if one.point.job.workload == ptd.NAME]
    fewest = sorted(
        split, key=lambda one: (-one.subject.config.pipeline, one.subject.config.tensor)
    )  # tensor traffic hides the stages
    for one in fewest[:1]:
        counted = [row for row in runs_of(one.point)[0].rows("spans") if row["window_name"]]
        rows: Rows = []
        for stage, rank in enumerate(one.subject.work.lines[0]):
            mine = [row for row in counted if row["rank"] == rank]
            first = min((row["iteration"] for row in mine), default=0)
            rows += [{**row, "stage": stage} for row in mine if row["iteration"] == first and row["span"] in _COLORS]
        begin_ns = min((row["start_ns"] for row in rows), default=0)
        return [
            {
                "training": one.keys["training"],
                "stage": row["stage"],
                "span": row["span"],
                "begin_ms": (row["start_ns"] - begin_ns) / 1e6,
                "ms": (row["end_ns"] - row["start_ns"]) / 1e6,
            }
            for row in rows
        ]
    return []


def bars_of_stages(rows: Rows, drawing: Any) -> None:
    """Draw the spans of each stage over time."""
    stages = sorted({row["stage"] for row in rows})
    panel = drawing.subplots()
    for row in rows:
        panel.barh(
            row["stage"],
            row["ms"],
            left=row["begin_ms"],
            height=0.7,
            alpha=0.25 if row["span"] == "receive" else 1.0,
            color=SERIES[_COLORS[row["span"]]],
            label=row["span"],
        )
    panel.set_yticks(stages, [f"stage {stage}" for stage in stages])
    panel.invert_yaxis()
    panel.set(xlabel=f"{rows[0]['training']}: time in the iteration (ms)")
    legend(panel, columns=5)
