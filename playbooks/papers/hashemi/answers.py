"""Draw the trace of every rank, as Fig 1 of Hashemi et al. shows one."""

from __future__ import annotations

from matplotlib.figure import Figure

from orchestrator.questions.rows import Rows, grouped
from orchestrator.report.style import SERIES, SOFT, legend

COLORS = {"forward": SERIES[0], "backward": SERIES[5], "receive": SERIES[1], "send": SERIES[2]}


def trace(rows: Rows, drawing: Figure) -> None:
    """Draw a bar for each span, in a row for each rank and lane."""
    lanes = grouped(sorted(rows, key=lambda row: (row["rank"], row["lane"] != "compute")), ["rank", "lane"])
    drawing.set_figheight(0.9 + 0.35 * len(lanes))
    panel = drawing.subplots()
    for at, of_lane in enumerate(lanes.values()):
        for (span,), of in grouped(of_lane, ["span"]).items():
            bars = [(row["begin_ms"], max(row["end_ms"] - row["begin_ms"], 1e-6)) for row in of]
            panel.broken_barh(
                bars, (-at - 0.4, 0.8), color=COLORS.get(span, SOFT), alpha=0.7, linewidth=0.3, label=span
            )
    words = {"compute": "computes", "communication": "communicates"}
    panel.set_yticks(range(0, -len(lanes), -1), [f"rank {rank} {words[lane]}" for rank, lane in lanes])
    panel.set_xlabel("ms")
    panel.grid(visible=False, axis="y")
    legend(panel)
