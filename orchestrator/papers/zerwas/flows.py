"""Fig 5 and the big flows: the number of flows, and how many carry the volume."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.papers.zerwas import frameworks
from orchestrator.papers.zerwas.frameworks import CALLED, Measured
from orchestrator.papers.zerwas.published import Flows, Zerwas
from orchestrator.report.study.content import Comparison, Rows, Section, Table, not_measured, same

IMITATED = "imitated over Gloo, which keeps one connection of each pair of hosts: its flows are not KungFu's"


def flows(found: Sequence[Measured], printed: Zerwas) -> Section:
    """Compare how many 5-tuples a training has, over the whole run."""
    grid = frameworks.plain(found)
    names = [line.framework for line in printed.flows]
    models = list(dict.fromkeys(one.model for one in grid))
    rows: Rows = []
    for name in names:
        mine = {one.model: one for one in grid if one.framework == name}
        if mine:
            rows.append((CALLED[name], *(_counts(mine[model]) if model in mine else "-" for model in models)))
    caption = (
        "5-tuples with a packet between hosts of the training in the whole run, one a direction; then those of the "
        "measured window that carry 99 % of its payload."
    )
    return Section(
        title="Fig 5: numbers of flows",
        text=(
            "Ours are counted over the whole run, without the rendezvous of the ranks (Horovod's makes a connection "
            "for each of its requests) and without SSH, which runs on other addresses. Gloo connects every rank with "
            "every other one, whatever the pattern of its gradients."
        ),
        comparisons=(*(_all(line, grid) for line in printed.flows), *(_big(line, grid) for line in printed.big_flows)),
        tables=(Table("Flows", caption, ("framework", *models), rows),),
    )


def _counts(one: Measured) -> str:
    return f"{count(one)}, {big(one)} big"


def count(one: Measured) -> int:
    """Return the number of flows of the training in a whole run."""
    return one.sights[0].flows


def big(one: Measured) -> int:
    """Return how few flows of a window carry 99 % of its payload."""
    return len(one.sights[0].volume.big)


def _all(line: Flows, grid: Sequence[Measured]) -> Comparison:
    what = f"{CALLED[line.framework]}: flows"
    counts = sorted({count(one) for one in grid if one.framework == line.framework})
    if not counts:
        return not_measured(what, str(line.flows), source=line.source)
    counted = " to ".join(str(value) for value in dict.fromkeys((counts[0], counts[-1])))
    if line.framework not in frameworks.RINGS:
        return Comparison(
            what=what,
            ours=counted,
            printed=str(line.flows),
            difference="",
            verdict="cannot be compared",
            why=IMITATED,
            source=line.source,
        )
    note = f" ({line.note})" if line.note else ""
    return same(f"{what}{note}", counts[0] if len(counts) == 1 else counted, line.flows, source=line.source)


def _big(line: Flows, grid: Sequence[Measured]) -> Comparison:
    what = f"{CALLED[line.framework]}: flows that carry 99 % of the payload"
    counts = [big(one) for one in grid if one.framework == line.framework]
    if not counts:
        return not_measured(what, str(line.flows), source=line.source)
    most = max(counts, key=lambda number: abs(number - line.flows))
    return same(what, most, line.flows, source=line.source)
