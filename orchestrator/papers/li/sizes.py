"""Fig 1: sizes of messages, of data parallelism and of split models; and table 3, messages of a rank."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from orchestrator.papers.li.published import Li
from orchestrator.papers.li.trainings import Found, Training
from orchestrator.parts.rows import Row
from orchestrator.predict import messages as predicted
from orchestrator.report.study.content import Comparison, Section, Table, holds, near, not_measured, same
from orchestrator.report.style import LINES, SERIES, Picture, figure, legend, look, save

MIB = 2.0**20
LARGE = MIB  # a message of as many bytes is large beside those of data centres
BUCKET_MIB = 25


def section(found: Found, printed: Li, folder: Path) -> Section:
    """Compare distributions of message sizes, and the claims about them."""
    shown = [*_largest_worlds(found.replicated), *found.split[:2]]
    sizes = {one.label: [row["bytes"] for row in one.messages(0) if row["span"] != "receive"] for one in shown}
    sizes = {label: values for label, values in sizes.items() if values}
    return Section(
        title="Fig 1: sizes of messages",
        text=(
            "What rank 0 all-reduced and sent in one iteration, as it recorded it, multiplied back by the scale. DDP's "
            "first bucket has PyTorch's 1 MiB where `first_bucket` was set: VGG-16's first 79.6 MiB are two messages."
        ),
        pictures=(_drawn(sizes, folder),) if sizes else (),
        comparisons=tuple(_judged(shown, sizes, printed)),
    )


def _largest_worlds(trainings: Sequence[Training]) -> list[Training]:
    """Return of each model the training with most ranks."""
    most: dict[str, Training] = {}
    for one in trainings:
        if one.model not in most or len(one.subject.job.ranks) > len(most[one.model].subject.job.ranks):
            most[one.model] = one
    return list(most.values())


def _judged(shown: Sequence[Training], sizes: dict[str, list[int]], printed: Li) -> list[Comparison]:
    largest, dominated, close = (
        printed.number("largest-message"),
        printed.claim("large-messages"),
        printed.claim("near-bucket"),
    )
    vgg = next((sizes[one.label] for one in shown if one.model == "vgg16" and one.label in sizes), None)
    judged = [
        near("VGG-16, largest message", max(vgg) / MIB, largest.value, within=0.03, unit="MiB", source=largest.source)
        if vgg
        else not_measured("VGG-16, largest message", f"{largest.value:g} MiB", source=largest.source)
    ]
    if not sizes:
        return [*judged, not_measured("sizes", dominated.text, source=dominated.source)]
    volume = sum(map(sum, sizes.values()))
    share = sum(size for values in sizes.values() for size in values if size >= LARGE) / volume
    judged.append(
        holds(
            "bytes in messages of 1 MiB or more",
            true=share > 0.9,
            ours=f"{share:.1%}",
            printed=dominated.text,
            source=dominated.source,
            why="more than 90 %",
        )
    )
    buckets = [size / MIB for one in shown if one.workload == "ddp" for size in sizes.get(one.label, [])]
    if buckets:
        around = sum(BUCKET_MIB <= size < 1.25 * BUCKET_MIB for size in buckets)
        judged.append(
            holds(
                "buckets of 25 MiB to a quarter more",
                true=around >= len(buckets) / 3,
                ours=f"{around} of {len(buckets)}",
                printed=close.text,
                source=close.source,
                why="a third of them or more",
            )
        )
    return judged


def _drawn(sizes: dict[str, list[int]], folder: Path) -> Picture:
    with look():
        drawing, (panel,) = figure(height_in=2.8)
        for number, (label, values) in enumerate(sizes.items()):
            ordered = np.sort(np.array(values)) / MIB
            panel.step(
                ordered,
                np.arange(1, len(ordered) + 1) / len(ordered),
                where="post",
                label=label,
                color=SERIES[number % len(SERIES)],
                linestyle=LINES[number // len(SERIES) % len(LINES)],
            )
        panel.set(xscale="log", xlabel="message (MiB)", ylabel="share of messages", ylim=(0, 1.02))
        legend(panel, columns=3)
        saved = save(drawing, folder / "message-sizes")
    return Picture(
        name="message-sizes",
        title="Sizes of messages",
        caption="The share of messages of this size or less (Li, figure 1).",
        saved=saved,
    )


def table_3(found: Found, printed: Li) -> Section:
    """Compare what rank 0 of the paper's training sends by our model, and what ranks of ours recorded."""
    from orchestrator.papers.li.printed_training import subject

    ours = {one.kind: one for one in predicted.of_rank(subject(), 0)}
    comparisons: list[Comparison] = []
    for line in printed.traffic:
        one = ours[line.kind]
        comparisons += [
            same(f"{line.kind}: messages", one.count, line.messages, source=line.source),
            near(
                f"{line.kind}: message", one.size / MIB, line.message_mib, within=0.005, unit="MiB", source=line.source
            ),
            near(
                f"{line.kind}: volume", one.volume / MIB, line.volume_mib, within=0.005, unit="MiB", source=line.source
            ),
        ]
    rows = [row for one in found.split for row in _recorded(one)]
    return Section(
        title="Table 3: what rank 0 sends in an iteration",
        text=(
            "By our model for GPT-3B, (p, t, d) = (4, 2, 4), of 50304 words with recomputation; the same by "
            "`orch predict playbooks/experiments/li/table-3.yaml`. Below, what ranks of these runs recorded beside "
            "what is predicted of them."
        ),
        comparisons=tuple(comparisons),
        tables=(
            Table(
                "Recorded beside predicted",
                "Messages of rank 0 in an iteration at full size: counts, and the largest one in MiB.",
                ("training", "kind", "messages", "predicted", "largest", "predicted"),
                rows,
            ),
        ),
    )


def _recorded(one: Training) -> list[tuple[str, ...]]:
    seen: dict[str, list[float]] = {}
    for row in one.messages(0):
        seen.setdefault(kind_of(row), []).append(row["bytes"] / MIB)
    return [
        (
            one.label,
            each.kind,
            str(len(seen.get(each.kind, []))),
            str(each.count),
            f"{max(seen.get(each.kind, [0.0])):.2f}",
            f"{each.size / MIB:.2f}",
        )
        for each in predicted.of_rank(one.subject, 0)
    ]


def kind_of(row: Row) -> str:
    """Return the kind of traffic that a recorded message of `ptd` belongs to."""
    return "pipeline" if row["span"] in ("send", "receive") else str(row["what"]).split(",")[0]
