"""Build the page that compares our runs with Li et al."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from orchestrator.core.errors import StoreError
from orchestrator.papers.li import accuracy, bandwidth, experts, heatmaps, overhead, sizes, stages
from orchestrator.papers.li.published import Li, li
from orchestrator.papers.li.trainings import Found, found
from orchestrator.report.study.content import Content, Section, apart
from orchestrator.store.rundir import Entry
from workloads.models import catalog


def content(entries: Sequence[Entry], folder: Path) -> Content:
    """Return all sections of these runs; StoreError when none of them is of the study."""
    runs = found(entries)
    if not (runs.replicated or runs.split or runs.experts or runs.benchmarks):
        raise StoreError(
            "nothing to show: none of these runs trains with ddp, ptd or moe, or times messages", hint="orch ls"
        )
    printed = li()
    return Content(
        made_of=(
            f"{len(runs.replicated)} data-parallel and {len(runs.split)} split trainings, {len(runs.experts)} with "
            f"experts, {len(runs.benchmarks)} benchmarks of messages"
        ),
        sections=(
            sizes.section(runs, printed, folder),
            heatmaps.section(runs, printed, folder),
            _models(printed),
            sizes.table_3(runs, printed),
            experts.section(runs.experts, printed, folder),
            overhead.split(runs, printed, folder),
            overhead.replicated(runs, printed),
            bandwidth.section(runs.benchmarks, printed, folder),
            stages.section(runs, printed, folder),
            accuracy.section(runs, printed, folder),
        ),
        limits=tuple(_limits(runs)),
        contradictions=(
            "Equation 2 has 648 tensor-parallel messages for the training of table 3, which prints 680: the all-reduce "
            "after the look-up of words and the one of the projection's input gradient are not in the equation.",
        ),
    )


def _models(printed: Li) -> Section:
    """Compare Table 2 with the catalog."""
    return Section(
        title="Table 2: models",
        text="Parameters of the catalog that is trained here, in 2^20 as the paper counts them.",
        comparisons=tuple(
            apart(
                line.name,
                catalog.load(line.name).parameters / 2**20,
                line.parameters_m,
                unit="M",
                source=line.source,
                why="one table beside another: nothing is measured",
            )
            for line in printed.models
        ),
    )


def _limits(runs: Found) -> Iterator[str]:
    yield (
        "Compute is emulated: ranks sleep for the time that computing would take. Shares of an iteration follow from "
        "the compute times in the study's files, which the paper does not print: what depends on them is shown and "
        "held to nothing."
    )
    yield (
        "Traffic is gloo over TCP between hosts of one machine, where the paper has NCCL over RoCEv2 and TCP, PCIe and "
        "NVLink. Within a host messages go over loopback and cost processors."
    )
    if any(one.subject.topology.scale > 1 for one in (*runs.replicated, *runs.split)):
        yield "Sizes and rates are divided by the scale and multiplied back here; the latency of a message is not."
