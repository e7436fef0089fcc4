"""Starts real ranks of a workload on loopback, each in its folder as an agent would, and looks at what they log."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from orchestrator.core.deadline import Deadline
from orchestrator.parts.launch import Launch
from orchestrator.parts.rows import LaunchOutput
from orchestrator.parts.topology import RENDEZVOUS_PORT, TASK_PORT, Job, Link, Node, Rail, Topology
from tests.helpers import machine
from tests.helpers.warm import Warm
from workloads.common.placement import ranks

PATIENCE_S = 120.0
SEED = 7


def topology(scale: int) -> Topology:
    """This machine alone."""
    host = Node(name="h1", rails=(Rail(address="127.0.0.1", prefix=8, device="lo"),), python=sys.executable)
    return Topology(kind="local", nodes=(host,), links=(Link(host="h1", device="lo", rate=25e9),), scale=scale)


def loopback(workload: Any, count: int, *, scale: int = 100, **options: object) -> list[Launch]:
    """Launches of a workload's ranks on this machine alone."""
    config = workload.Config.model_validate({"hosts": ["h1"] * count, **options})
    where = topology(scale)
    assert workload.problems(config, where) == []
    index = _free_job_index(tasks=workload.__name__ == "workloads.tensorflow")
    job = Job(name="job0", index=index, ranks=ranks(config.hosts, where))
    launches: list[Launch] = workload.launches(config, job, where, SEED)
    return launches


def _free_job_index(*, tasks: bool) -> int:
    """An index whose ports nobody listens on, the rendezvous' or TensorFlow's tasks': test runs share the machine."""
    if not tasks:
        return machine.free_port() - RENDEZVOUS_PORT
    return (machine.free_port() - TASK_PORT) // 100  # a block of 100 ports, of which tasks take the first ones


def _started(argv: list[str], home: Path, env: dict[str, str]) -> subprocess.Popen[bytes] | Warm:
    """A rank, forked where this interpreter would run it."""
    (home / "stdout").touch()
    (home / "stderr").touch()
    if argv[:2] == [sys.executable, "-u"]:
        return Warm(argv[2:], cwd=home, env=env)
    with (home / "stdout").open("wb") as stdout, (home / "stderr").open("wb") as stderr:
        return subprocess.Popen(argv, cwd=home, env=env, stdin=subprocess.PIPE, stdout=stdout, stderr=stderr)


class Ranks:
    """The processes of a list of launches, each in its folder."""

    def __init__(self, launches: list[Launch], folder: Path, *, extra: tuple[str, ...] = ()) -> None:
        self.processes: list[subprocess.Popen[bytes] | Warm] = []
        self.folders = [folder / launch.name for launch in launches]
        self.launches = launches
        for launch, home in zip(launches, self.folders, strict=True):
            home.mkdir()
            for name, content in launch.files.items():
                (home / name).write_bytes(content if isinstance(content, bytes) else content.read_bytes())
            self.processes.append(_started([*launch.argv, *extra], home, {**os.environ, **launch.env}))

    def wait_ready(self) -> None:
        for home in self.folders:
            Deadline.after(PATIENCE_S).poll(
                lambda home=home: "ready\n" in (home / "stdout").read_text(),
                every_s=0.05,
                waiting_for=f"ready of {home.name}: {(home / 'stderr').read_text()}",
            )

    def go(self) -> None:
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write(b"go\n")
            process.stdin.flush()

    def wait_iterations(self, count: int) -> None:
        Deadline.after(PATIENCE_S).poll(
            lambda: all(len(self.lines(rank)) >= count for rank in range(len(self.processes))),
            every_s=0.02,
            waiting_for=f"{count} iterations",
        )

    def lines(self, rank: int) -> list[str]:
        return (self.folders[rank] / "iterations.jsonl").read_text().splitlines()

    def stderr(self, rank: int) -> str:
        return (self.folders[rank] / "stderr").read_text()

    def end(self, signum: int = signal.SIGTERM, *, within_s: float = PATIENCE_S) -> list[int]:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signum)
        deadline = Deadline.after(within_s)
        return [process.wait(deadline.remaining) for process in self.processes]

    def read(self, workload: Any, rank: int, table: str = "iterations") -> dict[str, list[Any]]:
        launch = self.launches[rank]
        output = LaunchOutput(
            folder=self.folders[rank],
            node=launch.node,
            launch=launch.name,
            job=launch.job,
            rank=rank,
            window=None,
            source=None,
            offset_ns=0,
        )
        return dict(workload.read(output)[table])


@contextmanager
def running(launches: list[Launch], folder: Path, *, extra: tuple[str, ...] = ()) -> Iterator[Ranks]:
    started = Ranks(launches, folder, extra=extra)
    try:
        yield started
    finally:
        for process in started.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            if process.stdin:
                process.stdin.close()


def others_end_with_one_line(launches: list[Launch], folder: Path) -> None:
    """Kill rank 0 in its iterations: each other rank says in one line what failed, and ends with 1."""
    with running(launches, folder) as started:
        started.wait_ready()
        started.go()
        started.wait_iterations(3)
        started.processes[0].kill()
        for rank in range(1, len(launches)):
            assert started.processes[rank].wait(PATIENCE_S) == 1
            (line,) = started.stderr(rank).splitlines()
            assert line.startswith(f"rank {rank}: a collective failed: ")
