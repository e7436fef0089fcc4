"""Text on a study: what it would measure, and what it needs for that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from orchestrator.core.screen import layout
from orchestrator.experiment.paperfile import PaperFile, Study
from orchestrator.experiment.plan import RunPlan
from orchestrator.experiment.seeds import PLANNED
from orchestrator.experiment.sweepfile import Definition
from orchestrator.study import run_study
from orchestrator.sweep import run_sweep, sweepplan, sweeptext

EVERYWHERE = ("ip", "tcpdump")  # programs that every local run needs


class Needs(NamedTuple):
    """Requirements of hosts, beside those of every run: how many hosts, modules of Python, programs."""

    hosts: int
    modules: tuple[str, ...]
    programs: tuple[str, ...]


def listing(papers: Iterable[PaperFile]) -> str:
    """Return papers with what they show, their titles and the versions of their sweeps."""
    width = layout.columns()
    lines = []
    for paper in papers:
        lines += [f"{paper.name}: {paper.shows}", layout.hanging(paper.title, width, indent="  ")]
        lines.append(layout.hanging(f"versions: {', '.join(paper.sweeps)}", width, indent="  "))
    return "\n".join([*lines, "orch study PAPER --quick --what: what a version measures, needs and takes"])


def needs_text(needs: Needs) -> str:
    """Hosts, modules and programs."""
    parts = [f"{needs.hosts} hosts"]
    parts += [
        f"{what} {', '.join(names)}"
        for what, names in (("Python with", needs.modules), ("programs", needs.programs))
        if names
    ]
    return ", ".join(parts)


def what_text(study: Study, results: Path) -> str:
    """Everything that a study would measure, sweep by sweep, with what its plans need; nothing is started."""
    lines = [f"study {study.name}"]
    if study.calibration is not None:
        models = ", ".join(study.calibration.iteration_s)
        lines.append(f"  first: compute of {models} is fitted to this machine, unless it was (`orch calibrate`)")
    total = []
    for definition in study.sweeps:
        outlined = run_sweep.outlined(definition, results, PLANNED)
        total.append(outlined.estimate)
        lines.append(
            f"  {definition.file.name}: {len(definition.points)} points, {len(outlined.batches)} runs, "
            f"{sweeptext.estimate_text(outlined.estimate)}"
        )
        lines += [f"    {line}" for line in outlined.how]
        lines += [f"    {line}" for line in _axes(definition)]
    lines.append(f"needs {needs_text(needs_of(run_study.first_runs(study)))}")
    lines.append(f"takes {sweeptext.estimate_text(sweepplan.together(total))}")
    return "\n".join(lines)


def needs_of(found: Iterable[RunPlan]) -> Needs:
    """Return what plans need, beside what every run needs."""
    hosts, modules, programs = 0, set[str](), set[str]()
    for one in found:
        hosts = max(hosts, len(one.topology.hosts))
        modules |= {need.what for need in one.requirements if need.kind == "module"}
        programs |= {need.what for need in one.requirements if need.kind == "program"}
    named = sorted(name for name in programs - set(EVERYWHERE) if "/" not in name)
    return Needs(hosts=max(hosts, 1), modules=tuple(sorted(modules)), programs=tuple(named))


def _axes(definition: Definition) -> Iterator[str]:
    """Give what the points of a sweep differ in."""
    names = sweeptext.short_names(definition.axes)
    for axis in definition.axes:
        values = list(dict.fromkeys(str(point.values[axis]) for point in definition.points if axis in point.values))
        yield f"{names[axis]}: {', '.join(values)}"
