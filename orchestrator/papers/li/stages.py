"""Fig 9 and equation 7: schedule of a pipeline's stages in an iteration, and its bubble."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orchestrator.analysis.stats.agreement import over_runs
from orchestrator.papers.li.published import Li
from orchestrator.papers.li.trainings import Found, Training
from orchestrator.parts.rows import Row
from orchestrator.parts.terms import Terms
from orchestrator.report.study.content import Comparison, Section, cannot_tell, judged
from orchestrator.report.study.printed import Check
from orchestrator.report.style import SERIES, Picture, figure, legend, look, save
from workloads.models.formulation import Split, bubble_share

_COLORS = {"forward": 0, "backward": 1, "recompute": 3, "all-reduce": 2, "receive": 4}


def section(found: Found, printed: Li, folder: Path) -> Section:
    """Compare the schedule of the deepest pipeline, and the bubble's share of each with equation 7."""
    shown = [one for one in found.split if one.terms]
    deepest = max(shown, key=lambda one: one.config.pipeline, default=None)
    line = printed.number("bubble-share")
    check = printed.check("bubble")
    lines = [compared(one, line.source, check) for one in shown if one.config.pipeline > 2]
    return Section(
        title="Fig 9: the 1F1B schedule, and equation 7",
        text=(
            "The bubble is what is left of an iteration of rank 0 after computing and every kind of traffic; its share "
            "is of the iteration without the all-reduce of gradients. Equation 7 assumes even stages and messages that "
            "take no time beside computing: pipelines of two stages with large messages are not held to it."
        ),
        pictures=(_drawn(deepest, folder),) if deepest is not None else (),
        comparisons=tuple(lines) or (cannot_tell(check, "bubble", f"{line.value:.3f}", source=line.source),),
    )


def compared(one: Training, source: str, check: Check) -> Comparison:
    """Compare the share of the bubble with equation 7."""
    config = one.config
    wanted = bubble_share(
        Split(p=config.pipeline, t=config.tensor, d=config.data, m=config.microbatches, b=config.batch)
    )
    what = f"{one.label}, {config.microbatches} micro-batches: share of the bubble"
    return judged(check, what, over_runs(one.over(share)), wanted, source=source)


def share(terms: Terms) -> float:
    """Return the bubble's share of a rank's iteration without its all-reduces of gradients."""
    return terms.bubble_s / (terms.iteration_s - terms.data_s - terms.embedding_s)


def _drawn(one: Training, folder: Path) -> Picture:
    """Draw spans of one rank of each stage in the first iteration that counts."""
    line = one.split.lines[0]
    with look():
        drawing, (panel,) = figure(height_in=1.0 + 0.3 * len(line))
        begin = None
        for place, rank in enumerate(line):
            spans = _iteration(one.run.rows("spans"), rank)
            begin = min(span["start_ns"] for span in spans) if begin is None else begin
            for span in spans:
                if span["span"] in _COLORS:
                    left, width = (span["start_ns"] - begin) / 1e6, (span["end_ns"] - span["start_ns"]) / 1e6
                    pale = 0.25 if span["span"] == "receive" else 1.0
                    panel.barh(
                        place,
                        width,
                        left=left,
                        height=0.7,
                        alpha=pale,
                        color=SERIES[_COLORS[span["span"]]],
                        label=span["span"],
                    )
        panel.set_yticks(range(len(line)), [f"stage {place}" for place in range(len(line))])
        panel.invert_yaxis()
        panel.set(xlabel="time in the iteration (ms)")
        legend(panel, columns=5)
        saved = save(drawing, folder / "schedule")
    caption = (
        f"{one.label}, {one.config.microbatches} micro-batches: one rank a stage. Pale: receiving, and waiting for it."
    )
    return Picture(name="schedule", title="1F1B as it ran", caption=caption, saved=saved)


def _iteration(rows: Sequence[Row], rank: int) -> list[Row]:
    mine = [row for row in rows if row["rank"] == rank and row["window_name"]]
    first = min(row["iteration"] for row in mine)
    return [row for row in mine if row["iteration"] == first]
