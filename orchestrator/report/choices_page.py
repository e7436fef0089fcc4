"""Build the page of what a sweep chose to measure (`choices_page.html`): why each point ended, why each one came."""

from __future__ import annotations

from pathlib import Path

from orchestrator.core import where
from orchestrator.core.errors import StoreError
from orchestrator.experiment.sweepfile import Definition
from orchestrator.report import page
from orchestrator.report.tables import Number, Table, table
from orchestrator.store import atomic
from orchestrator.sweep import choicetext
from orchestrator.sweep.run_sweep import SweepOutcome

FILE = "choices.html"


def write(definition: Definition, outcome: SweepOutcome) -> Path | None:
    """Write the page into the sweep's folder; None for a sweep that measures all of its points.

    StoreError when it cannot be written.
    """
    if not outcome.standings and not outcome.bends:
        return None
    output = outcome.sweep.path / FILE
    how = choicetext.searching_for(definition)[:1] or choicetext.outlook(definition, None)[:1]
    tables = [_known(definition, outcome), *_searched(definition, outcome)]
    text = page.fill("choices_page.html", title=f"{outcome.sweep.name}: what it chose", about=how[0], tables=tables)
    try:
        atomic.write(output, text.encode())
    except OSError as error:
        raise StoreError(f"cannot write the page {output}: {error.strerror}") from error
    return output


def _known(definition: Definition, outcome: SweepOutcome) -> Table:
    """Return what is known of each point or pair, and why its repetitions ended."""
    until = definition.until
    rows = [
        [choicetext.subject(definition, one), str(one.count), choicetext.known_text(one, until), one.ended or "goes on"]
        for one in outcome.standings
        if until is not None
    ]
    return table("Until it is known", ["point", Number("repetitions"), "known", "why it ended"], rows)


def _searched(definition: Definition, outcome: SweepOutcome) -> list[Table]:
    """Return a table for each curve: its measurements in their order, and why each was chosen."""
    found = []
    for bend in outcome.bends:
        (axis,) = definition.file.searched
        values = {point.point: where.text_of(point.values[axis]) for point in definition.points}
        rows = [[str(number), values[name], why] for number, (name, why) in enumerate(bend.steps, start=1)]
        answer = choicetext.bend(definition, bend)
        found.append(table(bend.curve or "Where it bends", [Number("measurement"), axis, "why"], rows, caption=answer))
    return found
