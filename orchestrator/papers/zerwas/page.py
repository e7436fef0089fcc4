"""Build the page that compares the measured traffic of frameworks with Zerwas et al."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.core.errors import StoreError
from orchestrator.papers.zerwas import equation, figures, flows, frameworks, learned, loss, rates, volumes
from orchestrator.papers.zerwas.frameworks import Measured
from orchestrator.papers.zerwas.published import zerwas
from orchestrator.report.study.content import Content, Section
from orchestrator.report.style import Picture, look
from orchestrator.store.rundir import Entry


def content(entries: Sequence[Entry], folder: Path) -> Content:
    """Return all sections of these runs; StoreError when none of them trains by a framework of the paper."""
    printed = zerwas()
    found = frameworks.measured(entries, [model.model for model in printed.models])
    learning = learned.learned(entries)
    if not found and not learning:
        raise StoreError(
            "nothing to show: none of these runs has a valid window of TensorFlow, Horovod, KungFu or its imitation",
            hint="orch ls",
        )
    points = [*(one.point for one in found), *(one.point for one in learning)]
    windows = sum(len(point.windows) for point in points)
    with look():
        sections = (
            _with(volumes.volumes(found, printed), figures.bars(found, printed, folder)),
            volumes.classes(found, printed),
            _with(volumes.patterns(found, printed), figures.heatmaps(found, printed, folder)),
            flows.flows(found, printed),
            Section(title="Fig 6: flows over time", pictures=tuple(figures.timed(found, folder))),
            rates.table_one(found, printed),
            rates.table_two(found, printed),
            _with(rates.rhythm(found, printed), figures.zoomed(found, folder)),
            _with(learned.accuracy(learning, printed), learned.pictures(learning, folder)),
            _with(rates.batches(found, printed), figures.batches(found, folder)),
            _with(loss.losses(found, printed), figures.losses(loss.ratios(found), printed, folder)),
            equation.equation(found, printed),
        )
    return Content(
        made_of=f"{len(points)} points of {windows} windows",
        sections=sections,
        limits=tuple(_limits(found)),
        contradictions=(
            "Section IV.B gives sizes of models for ImageNet's thousand classes (14 to 171 MB), section V.A volumes of "
            "models for ten (140 to 4,000 GB).",
            "Fig 4b shows traffic between W1 and W4, which a binary tree star has no edge for; the paper does not "
            "explain it.",
        ),
    )


def _with(section: Section, pictures: Iterator[Picture]) -> Section:
    return replace(section, pictures=tuple(pictures))


def _limits(found: Sequence[Measured]) -> Iterator[str]:
    """Return what differs from the paper on the whole, and why."""
    scales = sorted({one.point.scale for one in found} - {1})
    if scales:
        yield (
            f"Rates and sizes were divided by {', '.join(map(str, scales))} (a factor of each model) and are "
            "multiplied back here; durations are as measured, those of dilated runs divided back. "
            "Packets, round trips, time-outs and what a packet costs "
            "a processor do not scale."
        )
    yield (
        "Compute is emulated but for Fig 8: passes wait for a time that follows from the paper's Table I (what a step "
        "of Horovod's takes by its throughput, less the time of a ring at 10 Gbit/s). So throughput is no prediction; "
        "volumes, patterns and flows are."
    )
    if any(one.point.job.workload == "p2p" for one in found):
        yield (
            "KungFu's graphs and pair averaging are imitated by sends and receives over Gloo (workload p2p): who sends "
            "what to whom is KungFu's, connections and speed are Gloo's."
        )
    yield "NCCL, and so Horovod's hierarchical reduction, needs GPUs: not here."
    yield (
        "What learns for Fig 8 is a network of 140,000 parameters and ten classes of gratings, made here: its volumes "
        "are not those of the paper's models on CIFAR-10, and its times are those of processors that the workers share."
    )
    yield "A parameter server's chief sends nothing here: each worker drives the servers by a session of its own."
