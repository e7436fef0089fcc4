"""What a host of eight rails costs that has 700 counters a rail, sampled ten times a second."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.core.deadline import Deadline
from orchestrator.parts import samplers as of_collectors
from orchestrator.parts.collectors import nic
from orchestrator.parts.launch import Launch
from orchestrator.parts.samplers import AGENTS
from orchestrator.parts.topology import Node
from tests.bench import local, samplers
from tests.bench.figure import Figure, Settings

RAILS = 8
A_RAIL = 700
EVERY_S = 0.1
GOAL_PERCENT = 2.0

_RECORDED = Path(__file__).parents[1] / "data/rdma/mlx5.json"


def measure(settings: Settings) -> Iterator[Figure]:
    """The sampler's processor time over wall time, of real files of RDMA counters and real devices of the kernel.

    The driver's counters (`ethtool -S`) come from a list, since no driver here has as many: what a driver does to
    answer is not in the figure.
    """
    driver = json.loads(_RECORDED.read_text())
    testbed = local.made(2, rails=RAILS)
    with local.machine_to_ourselves(), local.up(testbed, settings.scratch / "counters"):
        node = testbed.topology.node("h1")
        tree = settings.scratch / "sys"
        of_rdma = sum(_tree(tree, device, driver) for device in node.devices) // len(node.devices)
        launch = _launch(node, tree, _ethtool(driver, A_RAIL - of_rdma))
        with local.client(testbed, node.name) as client:
            client.start(launch, Deadline.after(local.CALL_S))
            times = settings.times(5, 2)
            shares = tuple(samplers.shares(testbed.run_id, launch, times=times, over_s=times))
            client.stop(launch, Deadline.after(local.CALL_S))
    yield Figure(
        what=f"{RAILS} rails, {A_RAIL} counters each ({of_rdma} files), every {EVERY_S * 1e3:.0f} ms",
        unit="% of a core",
        values=shares,
        against="goal",
        reference=(GOAL_PERCENT,),
    )


def _launch(node: Node, tree: Path, ethtool: dict[str, int]) -> Launch:
    """The sampler as `nic` starts it, with other sources."""
    arguments = (f"{EVERY_S:g}", f"{EVERY_S:g}", "0", str(tree), *node.devices)
    source = Path(__file__).with_name("recorded_source.py")
    made = of_collectors.sampler_launch(nic.NAME, node, arguments, required=True, source=source)
    more = {"nic_source.py": AGENTS / "nic_source.py", "ethtool.json": json.dumps(ethtool).encode()}
    return replace(made, files={**made.files, **more})


def _tree(sysfs: Path, device: str, driver: dict[str, Any]) -> int:
    """Sysfs of an RDMA device behind a network device; how many counters it has."""
    rdma = f"mlx5_{device}"
    port = sysfs / f"class/infiniband/{rdma}/ports/1"
    for group in ("counters", "hw_counters"):
        (port / group).mkdir(parents=True)
        for name, values in driver[group].items():
            (port / group / name).write_text(f"{values[0]}\n")
    (sysfs / f"class/net/{device}/device/infiniband/{rdma}").mkdir(parents=True)
    return len(driver["counters"]) + len(driver["hw_counters"])


def _ethtool(driver: dict[str, Any], count: int) -> dict[str, int]:
    """So many counters of a driver: those that are recorded, over and over, with the numbers of their turn."""
    recorded = [(name, values[0]) for name, values in driver["ethtool"].items()]
    turns = [(*recorded[at % len(recorded)], at // len(recorded)) for at in range(count)]
    return {f"{name}_{turn}": value + turn * 10**9 for name, value, turn in turns}
