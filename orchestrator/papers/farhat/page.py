"""Build the page that compares sixteen workers of Horovod with the findings of Farhat and Ghobadi."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from orchestrator.core.errors import StoreError
from orchestrator.papers.farhat import durations, overlapping, proportion, ring_order, to_accuracy
from orchestrator.papers.farhat.published import Count, farhat
from orchestrator.papers.farhat.trainings import Training, trainings
from orchestrator.report.study.content import Content, Section, remark
from orchestrator.store.rundir import Entry


def content(entries: Sequence[Entry], folder: Path) -> Content:
    """Return all sections of these runs; StoreError when none of them is a captured training with Horovod."""
    found = trainings(entries)
    if not found:
        raise StoreError("nothing to show: none of these runs has a valid, captured window of Horovod", hint="orch ls")
    printed = farhat()
    models = sorted({one.model for one in found})
    return Content(
        made_of=f"{len(found)} points, {sum(one.runs for one in found)} windows, {len(models)} models",
        sections=(
            proportion.section(found, printed, folder),
            ring_order.section(found, printed),
            durations.section(found, printed, folder),
            overlapping.section(found, printed, folder),
            to_accuracy.section(found, printed.finding("accuracy"), folder),
            _trained(models, printed.count("models")),
        ),
        limits=tuple(_limits(found)),
    )


def _trained(models: Sequence[str], count: Count) -> Section:
    return Section(
        title="Models",
        text=f"Models here: {', '.join(models)}. Which five the paper trains stands in its Table 1, not at hand.",
        comparisons=(
            remark(
                "models", str(len(models)), str(count.value), source=count.source, why="it is set, and not measured"
            ),
        ),
    )


def _limits(found: Sequence[Training]) -> Iterator[str]:
    yield (
        "Only the first page of the paper is at hand. It prints findings in words; where one is held to a number, the "
        "number is this project's and stands beside the verdict."
    )
    scales = sorted({one.scale for one in found} - {1})
    if scales:
        yield (
            f"Sizes and rates were divided by {' and '.join(map(str, scales))} and are multiplied back here; durations "
            "are as measured, those of dilated runs divided back. "
            "Messages by which Horovod's workers agree are not divided, so multiplied back they weigh "
            "as many times too much: small models send more than theory says by just these."
        )
    if any(one.emulated for one in found):
        yield (
            "Compute was emulated: layers wait for their share of a given time, and the time is proportional to the "
            "batch by assumption. What a batch does to the duration is therefore what of its time cannot be hidden."
        )
    crowded = [one.label for one in found if one.crowded]
    if crowded:
        yield (
            f"In {len(crowded)} of {len(found)} points the run itself kept the machine's processors busy, so that they "
            f"set the durations, and not the network alone: {'; '.join(crowded)}."
        )
    yield (
        "The paper trains on GPUs of Google Compute Engine; the page at hand says neither the rate of its links nor "
        "how many workers share one. Here each worker has a host and a link of its own."
    )
