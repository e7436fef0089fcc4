"""Text on a study: what it would measure, and what it needs for that."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from orchestrator.core.screen import layout
from orchestrator.experiment.plan import RunPlan
from orchestrator.experiment.studyfile import Needs, Study, StudyFile, Takes
from orchestrator.experiment.sweepfile import Definition
from orchestrator.study import run_study
from orchestrator.sweep import run_sweep, sweepplan, sweeptext

EVERYWHERE = ("ip", "tcpdump")  # programs that every local run needs


def listing(found: Iterable[tuple[str, str, str, StudyFile | None]]) -> str:
    """Papers by name, title and what they show, with what their studies need and take; None: no study file is there."""
    width = layout.columns()
    lines = []
    for name, title, shows, file in found:
        lines += [f"{name}: {shows}", layout.hanging(title, width, indent="  ")]
        if file is None:
            lines.append("  no study file here: a clone of the project has it")
            continue
        demands = []
        if file.needs is not None:
            demands.append(f"needs {needs_text(file.needs)}")
        demands.append(f"takes {takes_text(file.takes)} on two cores")
        lines.append(layout.hanging("; ".join(demands), width, indent="  "))
    return "\n".join(lines)


def needs_text(needs: Needs) -> str:
    """Hosts, modules and programs."""
    parts = [f"{needs.hosts} hosts"]
    parts += [
        f"{what} {', '.join(names)}"
        for what, names in (("Python with", needs.modules), ("programs", needs.programs))
        if names
    ]
    return ", ".join(parts)


def takes_text(takes: Takes) -> str:
    """How long both versions take."""
    known = [
        f"{sweeptext.time_text(seconds)} ({name})"
        for name, seconds in (("quick", takes.quick), ("full", takes.full))
        if seconds is not None
    ]
    return ", ".join(known) or "an unknown time"


def what_text(study: Study, results: Path) -> str:
    """Everything that a study would measure, sweep by sweep, with what its plans need; nothing is started."""
    lines = [f"study {study.name}: {study.covers}" if study.covers else f"study {study.name}"]
    if study.calibration is not None:
        models = ", ".join(study.calibration.iteration_s)
        lines.append(f"  first: compute of {models} is fitted to this machine, unless it was (`orch calibrate`)")
    total = []
    for definition in study.sweeps:
        batches = list(sweepplan.batches(definition, sweepplan.in_order(definition)))
        estimate = sweepplan.estimate(batches, run_sweep.earlier_windows(results, definition.file.name))
        total.append(estimate)
        lines.append(
            f"  {definition.file.name}: {len(definition.points)} points, {len(batches)} runs, "
            f"{sweeptext.estimate_text(estimate)}"
        )
        lines += [f"    {line}" for line in _axes(definition)]
    lines.append(f"needs {needs_text(needs_of(run_study.first_runs(study)))}")
    planned = sweeptext.estimate_text(sweepplan.together(total))
    about = f"about {sweeptext.time_text(study.takes_s)} on two cores; by its plan " if study.takes_s else ""
    lines.append(f"takes {about}{planned}")
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
