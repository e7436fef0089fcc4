"""Farhat: volumes that are proportional to model sizes, rings of the launch order, and durations by rate and batch."""

from __future__ import annotations

import numpy as np

from orchestrator.analysis.stats.agreement import over_runs
from orchestrator.analysis.traffic.pattern import IN_ORDER
from orchestrator.papers.farhat import durations, overlapping, proportion, ring_order
from orchestrator.papers.farhat.published import farhat
from orchestrator.papers.farhat.trainings import Ring, Training
from orchestrator.report.study.content import Comparison
from tests.helpers.checked import NOISE, ONE_RUN, RUNS

TWISTS = ("squared", "shuffled-sizes", "offset", "another-order", "full-mesh", "same-durations", "swapped", "all-lanes")
HOSTS = tuple(f"h{number}" for number in range(1, 17))
SIZES_MB = (10, 50, 100, 200, 500)


def lines(twist: str, seed: int) -> list[Comparison]:
    """Return every comparison of a whole study."""
    random, printed = np.random.default_rng(seed), farhat()
    sizes = list(SIZES_MB)
    if twist == "shuffled-sizes":
        sizes = sizes[::2] + sizes[1::2]
    models = [_training(f"m{size}", size, sent, twist, random) for size, sent in zip(SIZES_MB, sizes, strict=True)]
    rates = [_training("m50", 50, 50, twist, random, link_gbps=rate) for rate in (0.5, 1.0)]
    batches = [_training("m50", 50, 50, twist, random, batch=batch) for batch in (64, 128)]
    found = [*models, *rates, *batches]
    by_rate = durations.curves(found[1:2] + rates, lambda one: one.link_bps / 1e9, lambda one: (one.model, "gloo"))
    by_batch = durations.curves(
        found[1:2] + batches, lambda one: float(one.batch or 0), lambda one: (one.model, "gloo")
    )
    return [
        *proportion.compared(models, "gloo", printed),
        ring_order.judge("Gloo", models, printed),
        durations.not_size_alone(found, printed),
        *durations.dependence(by_rate, "Gbit/s", "bandwidth", printed),
        *durations.dependence(by_batch, "samples", "batch", printed),
        overlapping.displays(models, printed),
    ]


def _training(
    model: str, size_mb: float, sent_mb: float, twist: str, random: np.random.Generator, **other: float
) -> Training:
    rate, batch = other.get("link_gbps", 2.0), int(other.get("batch", 256))
    runs = range(1 if twist == ONE_RUN else RUNS)
    volume = {"squared": sent_mb**2 / 10, "offset": sent_mb * 30 + 3000}.get(twist, sent_mb * 30)
    relative = {"same-durations": 1.0, "swapped": rate / 2 * 256 / batch}.get(twist, (2 / rate) * (batch / 256))
    if twist == NOISE:
        took = random.lognormal(0, 1, len(runs))
        payloads = 1e9 * random.lognormal(0, 1, len(runs))
    else:
        took = relative * random.normal(1, 0.003, len(runs))
        payloads = volume * 1e6 * random.normal(1.003, 0.001, len(runs))
    order = "not in launch order" if twist == "another-order" else "" if twist == "full-mesh" else IN_ORDER
    lane = {"compute", "negotiation"} if twist == "all-lanes" else {"compute"}
    orders = [order if twist != NOISE else random.choice([IN_ORDER, "", "not in launch order"]) for _ in runs]
    lanes = [lane if twist != NOISE else {"compute", random.choice(["compute", "negotiation"])} for _ in runs]
    return Training(
        model=model,
        controller="gloo",
        workers=16,
        timeline=True,
        emulated=True,
        crowded=False,
        scale=100,
        model_bytes=size_mb * 1e6,
        link_bps=rate * 1e9,
        batch=batch,
        computing_s=0.1,
        seconds=over_runs(took),
        run_seconds=tuple(took),
        runs=len(runs),
        payloads=tuple(payloads),
        theory=30 * size_mb * 1e6,
        flows=32,
        big_flows=16,
        launched=HOSTS,
        rings=tuple(
            Ring(run=f"r{number}", shape="ring", hosts=HOSTS, score=1.0, order=found, reverse=0.0)
            for number, found in enumerate(orders)
        ),
        overlaps=(),
        lanes=tuple(frozenset(found) for found in lanes),
        learned=(),
    )
