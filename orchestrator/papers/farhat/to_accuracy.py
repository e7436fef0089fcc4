"""Time to accuracy: time and bytes until a model was right on so many held-out images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orchestrator.analysis.windows.time_to_accuracy import LEVELS, Learning
from orchestrator.papers.farhat.published import Finding
from orchestrator.papers.farhat.trainings import Training
from orchestrator.report.run import accuracy
from orchestrator.report.study.content import NOTHING, Comparison, Rows, Section, Table, not_measured
from orchestrator.report.style import Picture, look, save

TITLE = "Time to accuracy"
EMULATED = (
    "the trainings of these runs emulate compute and learn nothing; the full study has some that learn "
    "(playbooks/studies/farhat/accuracy.yaml)"
)
NO_VALUE = "the page at hand prints no time; ours stand in the table"


def section(found: Sequence[Training], finding: Finding, folder: Path) -> Section:
    """Compare accuracy over time and bytes, and the cost of each level."""
    learned = [one for one in found if one.learned]
    return Section(
        title=TITLE,
        text="Accuracy is that on held-out images after an epoch; time is that of training, without evaluations.",
        pictures=tuple(_drawn(learned, folder)),
        comparisons=(_compared(learned, finding),),
        tables=(_table(learned),),
    )


def _compared(found: Sequence[Training], finding: Finding) -> Comparison:
    return not_measured("time to accuracy", finding.text, source=finding.source, why=NO_VALUE if found else EMULATED)


def _table(found: Sequence[Training]) -> Table:
    rows: Rows = [
        (one.label, str(one.workers), f"{learning.accuracy.max():.1%}", *_taken(learning, one.scale))
        for one in found
        for learning in one.learned
    ]
    head = ("training", "workers", "highest", *(f"to {level:.0%}" for level in LEVELS))
    caption = "Highest accuracy, and epochs, seconds and payload of all workers until each level was first reached."
    return Table(TITLE, caption, head, rows)


def _taken(learning: Learning, scale: int) -> list[str]:
    comparisons = []
    for level in LEVELS:
        taken = learning.reached(level)
        comparisons.append(
            NOTHING
            if taken is None
            else f"{taken.epochs:.1f} epochs, {taken.seconds:.1f} s, {taken.sent_bytes * scale / 1e6:,.0f} MB"
        )
    return comparisons


def _drawn(found: Sequence[Training], folder: Path) -> list[Picture]:
    named = [(one.label, one.scale, learning) for one in found for learning in one.learned]
    with look():
        return [
            Picture(name=name, title=title, caption=caption, saved=save(drawing, folder / name))
            for name, title, drawing, caption in accuracy.both(named)
        ]
