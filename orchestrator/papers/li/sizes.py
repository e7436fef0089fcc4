"""Fig 1: sizes of messages, of data parallelism and of split models; and table 3, messages of a rank."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from orchestrator.analysis.stats.agreement import over_runs, repetitions
from orchestrator.papers.li.published import Li
from orchestrator.papers.li.trainings import Found, Training, messages
from orchestrator.parts.rows import Row
from orchestrator.predict import messages as predicted
from orchestrator.report.study.content import Comparison, Section, Table, apart, claimed, judged
from orchestrator.report.style import LINES, SERIES, Picture, figure, legend, look, save

MIB = 2.0**20
LARGE = MIB  # a message of as many bytes is large beside those of data centres
BUCKET_MIB = 25
BY_MODEL = "our model beside theirs: nothing is measured"


def section(found: Found, printed: Li, folder: Path) -> Section:
    """Compare distributions of message sizes, and the claims about them."""
    shown = [*_largest_worlds(found.replicated), *found.split[:2]]
    sizes = {one.label: values[0] for one in shown if (values := _sizes(one))}
    return Section(
        title="Fig 1: sizes of messages",
        text=(
            "What rank 0 all-reduced and sent in one iteration, as it recorded it, multiplied back by the scale. DDP's "
            "first bucket has PyTorch's 1 MiB where `first_bucket` was set: VGG-16's first 79.6 MiB are two messages."
        ),
        pictures=(_drawn(sizes, folder),) if sizes else (),
        comparisons=tuple(compared(shown, printed)),
    )


def _largest_worlds(trainings: Sequence[Training]) -> list[Training]:
    """Return of each model the training with most ranks."""
    most: dict[str, Training] = {}
    for one in trainings:
        if one.model not in most or len(one.subject.job.ranks) > len(most[one.model].subject.job.ranks):
            most[one.model] = one
    return list(most.values())


def _sizes(one: Training) -> list[list[int]]:
    """Return the bytes of what rank 0 all-reduced and sent in an iteration, by run that recorded some."""
    found = ([row["bytes"] for row in messages(run, 0) if row["span"] != "receive"] for run in one.runs)
    return [values for values in found if values]


def compared(shown: Sequence[Training], printed: Li) -> list[Comparison]:
    """Compare the largest message, and shares of large ones and of those near a bucket."""
    largest, dominated, close = (
        printed.number("largest-message"),
        printed.claim("large-messages"),
        printed.claim("near-bucket"),
    )
    each = [(one, sizes) for one in shown if (sizes := _sizes(one))]
    together = repetitions(sizes for _, sizes in each)
    vgg = next((sizes for one, sizes in each if one.model == "vgg16"), [])
    buckets = repetitions(sizes for one, sizes in each if one.workload == "ddp")
    return [
        judged(
            printed.check("largest-message"),
            "VGG-16, largest message",
            over_runs(max(sizes) / MIB for sizes in vgg),
            largest.value,
            unit="MiB",
            source=largest.source,
        ),
        claimed(
            printed.check("large-messages"),
            "share of bytes in messages of 1 MiB or more",
            over_runs(_large(of_all) for of_all in together),
            printed=dominated.text,
            source=dominated.source,
        ),
        claimed(
            printed.check("near-bucket"),
            "share of buckets of 25 MiB to a quarter more",
            over_runs(_near_bucket(of_all) for of_all in buckets),
            printed=close.text,
            source=close.source,
        ),
    ]


def _large(of_all: Sequence[Sequence[int]]) -> float:
    """Return the share of the bytes in large messages."""
    return sum(size for sizes in of_all for size in sizes if size >= LARGE) / sum(map(sum, of_all))


def _near_bucket(of_all: Sequence[Sequence[int]]) -> float:
    """Return the share of messages that are about as large as a bucket."""
    sizes = [size / MIB for sizes in of_all for size in sizes]
    return sum(BUCKET_MIB <= size < 1.25 * BUCKET_MIB for size in sizes) / len(sizes)


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
        for what, mine, theirs, unit in (
            ("messages", float(one.count), float(line.messages), ""),
            ("message", one.size / MIB, line.message_mib, "MiB"),
            ("volume", one.volume / MIB, line.volume_mib, "MiB"),
        ):
            what_of = f"{line.kind}: {what}"
            comparisons.append(apart(what_of, mine, theirs, unit=unit, source=line.source, why=BY_MODEL))
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
