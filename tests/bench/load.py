"""Whether cross traffic arrives as asked: layer-2 rate at the receiver within the window, against the request."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from tests.bench.commands import orch_run, training
from tests.bench.figure import Figure, Settings

LOADS_GBIT = (1, 5, 10, 20, 24)


def measure(settings: Settings) -> Iterator[Figure]:
    """One window a load, on links of 25 Gbit/s at a hundredth; the sender is a rank too and shares its NIC."""
    achieved: dict[int, list[float]] = {load: [] for load in LOADS_GBIT}
    for _ in range(settings.times(3, 1)):
        run = orch_run(_experiment(settings), settings.scratch)
        for load, window in zip(LOADS_GBIT, run.summary["windows"], strict=True):
            (traffic,) = window["cross_traffic"]
            achieved[load].append(traffic["achieved_bps"] / 1e9)
        shutil.rmtree(run.path)
    for load, values in achieved.items():
        yield Figure(
            what=f"iperf, {load} Gbit/s asked of a link of 25",
            unit="Gbit/s",
            values=tuple(values),
            against="requested",
            reference=(float(load),),
        )


def _experiment(settings: Settings) -> dict[str, object]:
    windows = [
        {"name": f"load{load}", "traffic": [{"iperf": {"from": "h1", "to": "h4", "load": f"{load}gbit", "streams": 4}}]}
        for load in LOADS_GBIT
    ]
    return training(
        4,
        name="load",
        workload={"ddp": {"model": "mobilenet_v2", "compute_time": "60ms", "hosts": ["h1", "h2", "h3"]}},
        windows=windows,
        validity={"load": "as-achieved"},
        measure={"warmup": 2, "iterations": settings.times(60, 20), "at_most": "60s"},
    )
