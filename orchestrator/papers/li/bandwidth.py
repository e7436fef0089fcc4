"""Fig 7: effective bandwidth of all-reduce and send-receive over message sizes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator.analysis.stats import agreement
from orchestrator.experiment import fitting, loading
from orchestrator.papers.li.published import Li
from orchestrator.report.run import collectives
from orchestrator.report.runs import Run
from orchestrator.report.study.content import Comparison, Section, cannot_tell, claimed, not_measured
from orchestrator.report.style import LINES, SERIES, Picture, figure, legend, look, save
from workloads.common import placement
from workloads.common.collective_traffic import members

CLUSTER = "needs hosts with RDMA and accelerators: the same study with an inventory"

# By name, and of each run: bus bandwidth in bit/s over message sizes in bytes, full size.
Curves = Mapping[str, Sequence[Mapping[int, float]]]


def section(runs: Sequence[Run], printed: Li, folder: Path) -> Section:
    """Compare bandwidth over sizes, with what only a cluster can show."""
    curves = measured(runs)
    claims = [printed.claim(name) for name in ("protocol", "platform")]
    return Section(
        title="Fig 7: benchmarks of messages",
        text=(
            "Gloo over TCP cubic; several groups work at the same time. Within a host messages take no link, and what "
            "they reach is the processors', multiplied by the scale."
        ),
        pictures=(_drawn(curves, folder),) if curves else (),
        comparisons=(
            *compared(curves, printed),
            *(not_measured("protocol and platform", claim.text, source=claim.source, why=CLUSTER) for claim in claims),
        ),
    )


def measured(runs: Sequence[Run]) -> Curves:
    """Return bandwidth over sizes of each operation and placement, by run."""
    curves: defaultdict[str, list[dict[int, float]]] = defaultdict(list)
    for run in runs:
        mine: defaultdict[str, dict[int, float]] = defaultdict(dict)
        for one in collectives.operation_timings(run):
            mine[f"{one.operation}, {placed(run)}"][one.bytes] = one.bus_bps
        for name, curve in mine.items():
            curves[name].append(curve)
    return curves


def placed(run: Run) -> str:
    """Return the groups of a benchmark and where they are: "4 groups of 2 within hosts, 25 Gbit/s"."""
    experiment = loading.sealed(run.path)
    topology = fitting.topology_of(experiment)
    config = experiment.all_jobs()[0].workload.config
    nodes = [rank.node for rank in placement.ranks(config.hosts, topology)]
    groups = members(len(nodes), config.groups)
    inside = all(len({nodes[rank] for rank in group}) == 1 for group in groups)
    several = f"{len(groups)} groups" if len(groups) > 1 else "a group"
    rate = min(topology.link(node).rate for node in nodes)
    return f"{several} of {len(groups[0])} {'within' if inside else 'across'} hosts, {rate / 1e9:g} Gbit/s"


def compared(curves: Curves, printed: Li) -> list[Comparison]:
    """Compare the largest message with the smallest one."""
    faster, check = printed.claim("large-are-faster"), printed.check("large-are-faster")
    if not curves:
        return [cannot_tell(check, "bandwidth over sizes", faster.text, source=faster.source)]
    return [
        claimed(
            check,
            f"{name}: largest over smallest message",
            agreement.ratio([of[max(of)] for of in of_runs], [of[min(of)] for of in of_runs]),
            printed=faster.text,
            source=faster.source,
        )
        for name, of_runs in curves.items()
    ]


def _drawn(curves: Curves, folder: Path) -> Picture:
    with look():
        drawing, (panel,) = figure(height_in=3.2)
        for number, (name, of_runs) in enumerate(curves.items()):
            curve = of_runs[-1]
            sizes = sorted(curve)
            panel.plot(
                [size / 1e6 for size in sizes],
                [curve[size] / 1e9 for size in sizes],
                marker="o",
                markersize=3.5,
                label=name,
                color=SERIES[number % len(SERIES)],
                linestyle=LINES[number // len(SERIES) % len(LINES)],
            )
        panel.set(xscale="log", yscale="log", xlabel="message (MB)", ylabel="bus bandwidth (Gbit/s)")
        legend(panel, columns=2)
        saved = save(drawing, folder / "bandwidth")
    return Picture(
        name="bandwidth",
        title="Effective bandwidth over message sizes",
        caption="Bus bandwidth as nccl-tests defines it, of each group, at full size (Li, figure 7).",
        saved=saved,
    )
