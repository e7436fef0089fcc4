"""What the samplers of counters cost the hosts that they watch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from orchestrator.core.deadline import Deadline
from orchestrator.parts.collectors import cpu, nic, processor, qdisc, tcp
from orchestrator.parts.launch import Launch
from tests.bench import local
from tests.bench.figure import Figure, Settings

GOAL_PERCENT = 1.0


def measure(settings: Settings) -> Iterator[Figure]:
    """Processor time of a sampler over wall time once it samples (schedstat), so that a busy machine hardly matters."""
    with local.machine_to_ourselves(), local.up(local.made(4), settings.scratch / "samplers") as testbed:
        topology = testbed.topology
        chosen = [
            ("nic at 10 ms, a host's port", nic.launches(nic.Config(), topology), "h1", GOAL_PERCENT),
            ("qdisc at 10 ms, a host's port", qdisc.launches(qdisc.Config(every="10ms"), topology), "h1", GOAL_PERCENT),
            ("nic at 10 ms, the switch's 4 ports", nic.launches(nic.Config(), topology), "switch", None),
            (
                "qdisc at 10 ms, the switch's 4 ports",
                qdisc.launches(qdisc.Config(every="10ms"), topology),
                "switch",
                None,
            ),
            ("nic at 1 ms, a host's port", nic.launches(nic.Config(every="1ms"), topology), "h1", None),
            ("tcp as by default", tcp.launches(tcp.Config(), topology), "h1", None),
            ("cpu as by default", cpu.launches(cpu.Config(), topology), "h1", None),
            ("processor as in every run", processor.launches(processor.Config(), topology), "h1", GOAL_PERCENT),
        ]
        for what, launches, node, goal in chosen:
            (launch,) = [one for one in launches if one.node == node]
            with local.client(testbed, node) as client:
                client.start(launch, Deadline.after(local.CALL_S))
                used = tuple(shares(testbed.run_id, launch, times=settings.times(5, 2), over_s=settings.times(5, 2)))
                client.stop(launch, Deadline.after(local.CALL_S))
            yield Figure(
                what=what,
                unit="% of a core",
                values=used,
                against="goal" if goal else "",
                reference=(goal,) if goal else (),
            )


def shares(run: str, launch: Launch, *, times: int, over_s: float) -> Iterator[float]:
    """Percent of a core that a sampler of a run used, over so many spells of wall time."""
    process = _process(run, launch.name)
    for _ in range(times):
        cpu_ns, began_ns = _cpu_ns(process), time.monotonic_ns()
        time.sleep(over_s)  # the interval that is measured
        yield 100.0 * (_cpu_ns(process) - cpu_ns) / (time.monotonic_ns() - began_ns)


def _cpu_ns(process: Path) -> int:
    return sum(int(thread.read_text().split()[0]) for thread in process.glob("task/*/schedstat"))


def _process(run: str, name: str) -> Path:
    """The sampler, which has namespaces of its own, among this machine's processes: by what marks a run's."""
    wanted = {f"ORCH_RUN={run}".encode(), f"ORCH_LAUNCH={name}".encode()}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if wanted <= set((entry / "environ").read_bytes().split(b"\0")):
                return entry
        except OSError:
            continue
    raise AssertionError(f"{name} does not run")
