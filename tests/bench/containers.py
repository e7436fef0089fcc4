"""What a container of podman costs a rank: iteration time and start, against the same ranks without one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from orchestrator.core.deadline import Deadline
from orchestrator.testbed.local import containers, host_image, runtimes
from tests.bench import paired
from tests.bench.figure import Figure, Settings

WITHIN_S = 60.0
GOAL = 1.03
LONGER_S = 1.0


def own_container() -> dict[str, Any]:
    """A container of our own image, which has this machine's programs and Python by mounts."""
    image = containers.ensure_image(runtimes.able("podman"), Deadline.after(WITHIN_S))
    mounts = [*host_image.programs(), *host_image.environments([])]
    return {"image": image, "python": sys.executable, "mounts": mounts}


def measure(settings: Settings) -> Iterator[Figure]:
    """Four ranks of a small model with emulated compute on four hosts, in interleaved pairs of runs."""
    training = {"model": "mobilenet_v2", "compute_time": "40ms"}
    yield from paired.compared(
        settings,
        name="containers",
        one=("in containers", {"workload": {"ddp": {**training, "container": own_container()}}}),
        other=("without", {"workload": {"ddp": training}}),
        goal=GOAL,
        pairs=10,
        phases={"ranks": LONGER_S, "stop ranks": LONGER_S},
    )
