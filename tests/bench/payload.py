"""Whether captures count what a training sends: payload an iteration against 2(N-1)/N x parameters x 4 bytes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from tests.bench.commands import only_job, orch_run, training
from tests.bench.figure import Figure, Settings

COMPUTE_TIMES = {"resnet50": "120ms", "mobilenet_v2": "60ms"}
RANKS = (3, 4)


def measure(settings: Settings) -> Iterator[Figure]:
    """TCP payload that the captures saw leave a rank, without repetitions, mean over ranks and iterations (scaled)."""
    for model in COMPUTE_TIMES:
        for ranks in RANKS:
            measured, theory = [], 0.0
            for _ in range(settings.times(3, 1)):
                job = _one(model, ranks, settings)
                measured.append(job["measured_raw"] / 1e3)
                theory = job["theory_raw"] / 1e3
            furthest = max(abs(value / theory - 1) for value in measured)
            yield Figure(
                what=f"{model}, {ranks} ranks: payload an iteration",
                unit="kB",
                values=tuple(measured),
                against="theory",
                reference=(theory,),
                note=f"off by at most {furthest:.2%}, goal 2 %",
            )


def _one(model: str, ranks: int, settings: Settings) -> dict[str, float]:
    run = orch_run(
        training(
            ranks,
            name=f"payload-{model.replace('_', '-')}-{ranks}",
            workload={"ddp": {"model": model, "compute_time": COMPUTE_TIMES[model]}},
            collect=["tcpdump", "nic"],
            measure={"warmup": 3, "iterations": settings.times(50, 20), "at_most": "60s"},
        ),
        settings.scratch,
    )
    found = only_job(run)["bytes_per_iteration"]
    shutil.rmtree(run.path)
    return dict(found)
