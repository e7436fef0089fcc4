"""Build the page that compares scaling, traces and orders with Hashemi et al."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from orchestrator.analysis.compare.points import MeasuredPoint, pooled
from orchestrator.core.errors import StoreError
from orchestrator.papers.hashemi import orders, scaling, traced
from orchestrator.papers.hashemi.published import Hashemi, published
from orchestrator.report.study.content import Content
from orchestrator.store.rundir import Entry


def content(entries: Sequence[Entry], folder: Path) -> Content:
    """Return all sections of these runs; StoreError when none of them has a valid window."""
    points = pooled(entries)
    if not points:
        raise StoreError("nothing to show: none of these runs has a valid window of a training", hint="orch ls")
    printed = published()
    return Content(
        made_of=f"{len(points)} points of {len({window.entry.run for one in points for window in one.windows})} runs",
        sections=(
            traced.section(points, printed, folder),
            scaling.section(points, printed, folder),
            orders.section(points, printed),
        ),
        limits=tuple(_limits(points)),
        contradictions=tuple(_contradictions(printed)),
    )


def _limits(points: Sequence[MeasuredPoint]) -> Iterator[str]:
    scales = sorted({point.scale for point in points})
    if scales != [1]:
        yield (
            f"Rates and sizes were divided by {' and '.join(map(str, scales))}; durations are as measured, those of "
            "dilated runs divided back. Packets, "
            "round-trip times and the cost of a message to a processor do not scale, so that many small messages cost "
            "more here: that of a ring grows with its workers."
        )
    if any(point.job.compute == "emulated" for point in points):
        yield (
            "Compute was emulated: passes wait for the time of the modelled accelerator. Workers compute equally long, "
            "so that hardly anybody straggles but by the network."
        )
    yield (
        "The report ran TensorFlow on the Gemini network of Blue Waters, with its parameter servers and with "
        "all-reduce as operations of its graph. Here servers and all-reduces are made of the same sends and receives "
        "of gloo over TCP, and TensorFlow's own servers stand in the trace alone."
    )
    yield (
        "PyTorch computes one layer after the other. Of such a chain TIC and TAC are the order of the layers, so that "
        "they cannot be better than it; they differ from it on graphs with branches that may be computed in any order."
    )


def _contradictions(printed: Hashemi) -> Iterator[str]:
    step, inference, training = (printed.largest("step"), printed.largest("inference"), printed.largest("training"))
    yield (
        f"The report prints steps up to {step.value:.0%} shorter. The paper that came of it, TicTac (MLSys 2019), "
        f"prints a throughput up to {inference.value:.1%} higher in inference and {training.value:.1%} in training, "
        f"which are steps up to {1 - 1 / (1 + inference.value):.0%} and {1 - 1 / (1 + training.value):.0%} shorter."
    )
