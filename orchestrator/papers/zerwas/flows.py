"""Fig 5 and the big flows: the number of flows, and how many carry the volume."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from orchestrator.papers.zerwas import frameworks
from orchestrator.papers.zerwas.frameworks import CALLED, Measured
from orchestrator.papers.zerwas.published import Flows, Zerwas
from orchestrator.papers.zerwas.sights import Sight
from orchestrator.report.study.content import NOTHING, Comparison, Rows, Section, Table, counted, remark
from orchestrator.report.study.printed import Check

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
        comparisons=(
            *(_all(line, grid, printed.check("flows")) for line in printed.flows),
            *(_big(line, grid, printed.check("big-flows")) for line in printed.big_flows),
        ),
        tables=(Table("Flows", caption, ("framework", *models), rows),),
    )


def _counts(one: Measured) -> str:
    first = one.sights[0]
    return f"{first.flows}, {big(first)} big"


def big(window: Sight) -> int:
    """Return how few flows of a window carry 99 % of its payload."""
    return len(window.volume.big)


def _all(line: Flows, grid: Sequence[Measured], check: Check) -> Comparison:
    """Compare the number of flows of the training in a whole run."""
    note = f" ({line.note})" if line.note else ""
    what = f"{CALLED[line.framework]}: flows"
    counts = _of_framework(line, grid, lambda window: window.flows)
    if counts and line.framework not in frameworks.RINGS:
        return remark(what, _range(counts), str(line.flows), source=line.source, why=IMITATED)
    return _counted(check, f"{what}{note}", counts, line)


def _big(line: Flows, grid: Sequence[Measured], check: Check) -> Comparison:
    counts = _of_framework(line, grid, big)
    return _counted(check, f"{CALLED[line.framework]}: flows that carry 99 % of the payload", counts, line)


def _counted(check: Check, what: str, counts: Sequence[Sequence[float]], line: Flows) -> Comparison:
    true = [[count == line.flows for count in of_point] for of_point in counts]
    return counted(check, what, true, ours=_range(counts), printed=str(line.flows), source=line.source)


def _of_framework(line: Flows, grid: Sequence[Measured], of: Callable[[Sight], int]) -> list[list[float]]:
    """Return the number of flows of each point by run, mean over its windows."""
    return [one.over(of) for one in grid if one.framework == line.framework]


def _range(of_points: Sequence[Sequence[float]]) -> str:
    counts = [count for of_point in of_points for count in of_point]
    return " to ".join(f"{value:g}" for value in dict.fromkeys((min(counts), max(counts)))) if counts else NOTHING
