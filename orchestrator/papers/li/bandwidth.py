"""Fig 7: effective bandwidth of all-reduce and send-receive over message sizes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from orchestrator.papers.li.published import Li
from orchestrator.report.run import collectives
from orchestrator.report.run.figures import Picture
from orchestrator.report.runs import Run
from orchestrator.report.study.comparison import holds, not_measured
from orchestrator.report.study.content import Section
from orchestrator.report.style import look, save

CLUSTER = "needs hosts with RDMA and accelerators: the same study with an inventory"


def section(runs: Sequence[Run], printed: Li, folder: Path) -> Section:
    """Bandwidth over sizes, and what only a cluster can show."""
    faster = printed.claim("large-are-faster")
    judged = [not_measured("bandwidth over sizes", faster.text, source=faster.source)]
    sizes: defaultdict[str, dict[int, float]] = defaultdict(dict)
    for number, run in enumerate(runs):
        for one in collectives.measured(run):
            sizes[f"{one.operation}, benchmark {number}"][one.bytes] = one.bus_bps
    if sizes:
        judged = [
            holds(
                f"{name}: largest against smallest message",
                true=of[max(of)] > of[min(of)],
                ours=f"{of[max(of)] / 1e9:.1f} against {of[min(of)] / 1e9:.2f} Gbit/s",
                printed=faster.text,
                source=faster.source,
            )
            for name, of in sizes.items()
        ]
    claims = [printed.claim(name) for name in ("protocol", "platform")]
    judged += [not_measured("protocol and platform", claim.text, source=claim.source, why=CLUSTER) for claim in claims]
    with look():
        drawn = collectives.utilization(runs)
        pictures: tuple[Picture, ...] = ()
        if drawn is not None:
            svg = save(drawn[0], folder / "bandwidth")
            pictures = (
                Picture(name="bandwidth", title="Use of the link over message sizes", caption=drawn[1], svg=svg),
            )
    return Section(
        title="Fig 7: benchmarks of messages",
        text="Gloo over TCP cubic. Within a host messages take no link, so their share of one can exceed it.",
        pictures=pictures,
        comparisons=tuple(judged),
    )
