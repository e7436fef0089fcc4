"""Figs 2, 3, 11 and 12: traffic matrices of ranks by kind, and the mapping of ranks to machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.colors import LogNorm

from orchestrator.analysis.stats.agreement import over_runs
from orchestrator.analysis.traffic.traffic import Volume
from orchestrator.papers.li import printed_training
from orchestrator.papers.li.published import Li
from orchestrator.papers.li.sizes import kind_of
from orchestrator.papers.li.trainings import Found, Training
from orchestrator.predict.predicting import Subject
from orchestrator.report.study.content import Comparison, Section, cannot_tell, claimed, remark
from orchestrator.report.style import INK, SERIES, Picture, figure, look, save
from workloads import ptd
from workloads.common import rank_traffic
from workloads.common.rank_traffic import Pairs

Matrix = npt.NDArray[np.float64]


def section(found: Found, printed: Li, folder: Path) -> Section:
    """Compare heatmaps of the paper's training by our model, and of ours: predicted, and as ranks recorded it."""
    wanted = {"default": {}, "tensor 4": {"tensor": 4, "data": 2}, "customized": {"mapping": "customized"}}
    papers = {name: printed_training.subject(**changes) for name, changes in wanted.items()}  # type: ignore[arg-type]
    pictures = [
        _drawn(
            {f"{name}: GPT-3B, 32 ranks": _matrix(_predicted(one)) for name, one in papers.items()},
            folder,
            "heatmap-paper",
            "The paper's trainings, by our model",
        )
    ]
    for number, one in enumerate(found.split[:3]):
        maps = {"predicted": _matrix(_predicted(one.subject)), "recorded": _matrix(recorded(one))}
        pictures.append(_drawn(maps, folder, f"heatmap-{number}", one.label))
    pictures += [mapping_drawn(papers[name], name, folder) for name in ("default", "customized")]
    return Section(
        title="Figs 2, 3, 11 and 12: traffic between ranks, and mappings",
        text=(
            "GB an iteration from each rank (row) to each rank (column), tensor, pipeline, data and embedding traffic "
            "together, logarithmic. Predicted: by equations 2 to 4, stage by stage. Recorded: counts and sizes of the "
            "ranks' own messages; an all-reduced one is laid on the ring of its group, which captures confirm between "
            "hosts."
        ),
        pictures=tuple(pictures),
        comparisons=tuple(compared(found, papers, printed)),
    )


def _predicted(subject: Subject) -> Pairs:
    """Return the predicted bytes between ranks at full size."""
    scale = subject.topology.scale
    kinds = ptd.traffic(subject.config, scale).values()
    return {pair: size * scale for pair, size in rank_traffic.summed(kinds).items()}


def recorded(one: Training) -> Pairs:
    """Return the bytes between ranks that these recorded: sends as they are, all-reduces around their group's ring."""
    work = one.split
    groups = {"tensor": work.tensor_groups, "data": work.data_groups, "embedding": work.ends}
    parts: list[Pairs] = []
    for rank in range(len(work.stage_of)):
        for row in one.messages(rank):
            if row["span"] == "send":
                parts.append({(rank, row["peer"]): float(row["bytes"])})
            elif row["span"] == "all-reduce":
                members = sorted(next(group for group in groups[kind_of(row)] if rank in group))
                sent = 2 * (len(members) - 1) / len(members) * row["bytes"]
                parts.append({(rank, members[members.index(rank) - 1]): sent})
    return rank_traffic.summed(parts)


def _matrix(pairs: Pairs) -> Matrix:
    size = 1 + max((max(pair) for pair in pairs), default=0)
    found = np.zeros((size, size))
    for (src, dst), sent in pairs.items():
        found[src, dst] = sent / 1e9
    return found


def compared(found: Found, papers: Mapping[str, Subject], printed: Li) -> list[Comparison]:
    """Compare the captured bytes of pairs of hosts with the predicted ones."""
    reach = printed.claim("tensor-range")
    two, four = (ptd.traffic(papers[name].config, 1) for name in ("default", "tensor 4"))
    judged = [
        remark(
            "GPT-3B, t = 4 against t = 2, by our model",
            f"{_joined(four['tensor'])} against {_joined(two['tensor'])} pairs with tensor traffic; data traffic "
            f"{sum(four['data'].values()) / sum(two['data'].values()):.2f} times as much",
            reach.text,
            source=reach.source,
            why="a model beside a claim: nothing is measured",
        )
    ]
    claim = printed.claim("predictable")
    check = printed.check("predictable")
    captured = [one for one in found.split if one.captured]
    if not captured:
        return [*judged, cannot_tell(check, "captured between hosts", claim.text, source=claim.source)]
    return judged + [
        claimed(
            check,
            f"{one.label}: bytes of host pairs, captured against predicted, furthest apart",
            over_runs(captured_apart(one, volume) * 100 for volume in _volumes(one)),
            unit="%",
            printed=claim.text,
            source=claim.source,
        )
        for one in captured
    ]


def _volumes(one: Training) -> list[Volume]:
    """Return the captured volume of the first window of each run."""
    first = {window.window.entry.run: window.volume for window in reversed(one.captured)}
    return list(first.values())


def _joined(pairs: Pairs) -> int:
    """Return pairs of ranks with traffic in either direction."""
    return len({frozenset(pair) for pair in pairs})


def captured_apart(one: Training, volume: Volume) -> float:
    """Return the largest difference of captured from predicted payload over pairs of hosts.

    It is a share of the predicted payload. A pair that carries less than a thousandth of the busiest one has control
    messages alone, and does not count.
    """
    predicted = dict.fromkeys(((a, b) for a in volume.hosts for b in volume.hosts if a != b), 0.0)
    for src, dst, size in rank_traffic.between_nodes(one.subject.job, _predicted(one.subject)):
        predicted[src, dst] = size
    most = max(predicted.values())
    apart = [
        abs(volume.edge(src, dst) - size) / (size or most)
        for (src, dst), size in predicted.items()
        if max(size, volume.edge(src, dst)) > most / 1000
    ]
    return max(apart)


def _drawn(maps: Mapping[str, Matrix], folder: Path, name: str, title: str) -> Picture:
    most = max(float(one.max()) for one in maps.values()) or 1.0
    with look():
        drawing, _ = figure(height_in=2.9)
        drawing.clear()
        panels = drawing.subplots(1, len(maps), squeeze=False)[0]
        for panel, (label, values) in zip(panels, maps.items(), strict=True):
            shown = np.where(values > 0, values, np.nan)
            image = panel.imshow(shown, cmap="viridis", norm=LogNorm(most / 1e3, most), interpolation="nearest")
            panel.set_title(label, fontsize=8)
            panel.grid(visible=False)
            panel.set(xlabel="to rank", ylabel="from rank")
        drawing.colorbar(image, ax=list(panels), shrink=0.7, label="GB")
        saved = save(drawing, folder / name)
    return Picture(name=name, title=title, caption="GB an iteration between ranks; white: nothing.", saved=saved)


def mapping_drawn(subject: Subject, name: str, folder: Path) -> Picture:
    """Draw each rank in its machine, with its stage (colour), part of each tensor and replica."""
    places: Sequence[tuple[int, int, int]] = ptd.placed(subject.config)
    nodes = subject.job.nodes
    with look():
        drawing, (panel,) = figure(height_in=2.2)
        for rank, (stage, part, replica) in enumerate(places):
            row, column = nodes.index(subject.job.ranks[rank].node), subject.job.ranks[rank].local_rank
            panel.add_patch(_box(column, row, SERIES[stage % len(SERIES)]))
            panel.text(column, row, f"{rank}\nt{part} d{replica}", ha="center", va="center", fontsize=6.5, color=INK)
        panel.set(xlim=(-0.6, max(rank.local_rank for rank in subject.job.ranks) + 0.6), ylim=(len(nodes) - 0.4, -0.6))
        panel.set_yticks(range(len(nodes)), [f"machine {number}" for number in range(len(nodes))])
        panel.set_xticks([])
        panel.grid(visible=False)
        saved = save(drawing, folder / f"mapping-{name}")
    caption = "Ranks in their machines; a colour a pipeline stage, t the part of each tensor, d the replica."
    title = f"Mapping {name} of (4, 2, 4) to 32 ranks"
    return Picture(name=f"mapping-{name}", title=title, caption=caption, saved=saved)


def _box(column: int, row: int, color: str) -> object:
    from matplotlib.patches import Rectangle

    return Rectangle((column - 0.45, row - 0.42), 0.9, 0.84, facecolor=color, alpha=0.45, edgecolor="none")
