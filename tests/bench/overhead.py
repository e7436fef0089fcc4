"""What a run costs beyond the measurement itself, with 4 and with 64 hosts, in time and in the controller's memory."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from typing import Any

from tests.bench.commands import OrchRun, orch_run, training, watched
from tests.bench.figure import Figure, Settings

MEMORY_GOAL_MB = 250.0
GOAL_S = {4: 3.0, 64: 12.0}


def experiment(hosts: int) -> dict[str, Any]:
    """Four ranks and one iperf pair, and every collector on every host.

    With 64 hosts on one machine the counters are sampled every 100 ms: a hundred samplers at 10 ms take most of two
    cores, and would measure themselves.
    """
    every = {} if hosts <= 8 else {"every": "100ms"}
    return training(
        hosts,
        name=f"overhead{hosts}",
        workload={"ddp": {"model": "resnet50", "batch": 64, "compute": "emulated", "hosts": ["h1", "h2", "h3", "h4"]}},
        traffic=[{"iperf": {"from": "h1", "to": "h4", "load": "4gbit", "streams": 2}}],
        collect=["tcpdump", {"nic": every}, {"qdisc": every}, "tcp", "cpu"],
        measure={"warmup": 2, "iterations": 20, "at_most": "60s"},
    )


def measure(settings: Settings) -> Iterator[Figure]:
    """Whole runs; the report is rendered by a command of its own, and once within the run as users have it."""
    for hosts, goal_s in GOAL_S.items():
        runs, reports, whole = _repeated(hosts, settings.times(5, 1) if hosts == 4 else settings.times(3, 1), settings)
        label = f"{hosts} hosts"
        yield Figure(
            what=f"{label}: our own overhead",
            unit="s",
            values=tuple(run.manifest["overhead_s"] for run in runs),
            against="goal",
            reference=(goal_s,),
        )
        yield from _phases(label, runs)
        if around := tuple(run.around_s for run in runs if run.around_s is not None):
            yield Figure(what=f"{label}: around it: program start, reading the file, exit", unit="s", values=around)
        yield Figure(what=f"{label}: orch report", unit="s", values=tuple(seconds for seconds, _ in reports))
        yield from _memory(label, runs, [peak for _, peak in reports], whole)


def _repeated(hosts: int, times: int, settings: Settings) -> tuple[list[OrchRun], list[tuple[float, int]], OrchRun]:
    runs, reports = [], []
    for _ in range(times):
        run = orch_run(experiment(hosts), settings.scratch)
        done, peaks = watched(["report", str(run.path)], settings.scratch)
        runs.append(run)
        reports.append((done.seconds, peaks["peak_bytes"]))
        shutil.rmtree(run.path)
    whole = orch_run(experiment(hosts), settings.scratch, report=True)
    return runs, reports, whole


def _phases(label: str, runs: Sequence[OrchRun]) -> Iterator[Figure]:
    from orchestrator.execution.runner import NOT_OVERHEAD

    for phase in runs[0].manifest["phases"]:
        if phase != "total":
            note = "not our overhead" if phase in NOT_OVERHEAD else ""
            values = tuple(run.manifest["phases"].get(phase, 0.0) for run in runs)
            yield Figure(what=f"{label}:   {phase}", unit="s", values=values, note=note)


def _memory(label: str, runs: Sequence[OrchRun], reports: Sequence[int], whole: OrchRun) -> Iterator[Figure]:
    for what, peaks, goal in (
        ("peak memory of orch run --no-report", [run.peak_bytes for run in runs], True),
        ("peak memory of orch run, report included", [whole.peak_bytes], True),
        ("peak memory of orch report", reports, False),
        ("largest child of orch run (makes the tables)", [run.children_peak_bytes for run in runs], False),
    ):
        yield Figure(
            what=f"{label}: {what}",
            unit="MB",
            values=tuple(peak / 1e6 for peak in peaks),
            against="goal" if goal else "",
            reference=(MEMORY_GOAL_MB,) if goal else (),
        )
