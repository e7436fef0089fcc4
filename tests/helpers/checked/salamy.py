"""Salamy: curves of the thesis' own fits, over its loads, and bursts that keep the bottleneck at nine tenths."""

from __future__ import annotations

import numpy as np

from orchestrator.analysis.compare.curves import CurvePoint, Kind, Series
from orchestrator.analysis.traffic.sharedlink import SharedLink
from orchestrator.papers.salamy import causes, differences, form, headline, model, tables
from orchestrator.papers.salamy.published import salamy
from orchestrator.report.study.content import Comparison
from tests.helpers.checked import NOISE, ONE_RUN, RUNS

TWISTS = (
    *("fluid", "straight", "constant", "doubled", "another-model", "shuffled-loads", "same-traffic"),
    *("idle-link", "full-link"),
)
LOADS_GBPS = np.array([0, 4, 8, 11, 13.99, 16, 18, 19.5, 20.5])
VOLUME_MB = {"bert-large": 2011.0, "vgg16": 830.1}
FITS = {  # n, A and B
    ("bert-large", "iperf", "rdma"): (1.0, 0.618, 9.95),
    ("vgg16", "iperf", "rdma"): (1.0, 0.254, 10.75),
    ("bert-large", "websearch", "rdma"): (0.5, 0.202, 7.25),
    ("vgg16", "websearch-burst", "tcp"): (2.0, 0.4, 60.0),
}


def lines(twist: str, seed: int) -> list[Comparison]:
    """Return every comparison of a whole study."""
    random, printed = np.random.default_rng(seed), salamy()
    found = [model.analysed(_series(*key, twist, random)) for key in FITS]
    sections = (
        tables.points(found, printed),
        form.section(found, printed),
        *headline.sections(found, printed),
        *differences.sections(found, printed),
        causes.order(found, printed),
    )
    return [line for section in sections for line in section.comparisons]


def _series(name: str, traffic: str, transport: str, twist: str, random: np.random.Generator) -> Series:
    volume_mb = VOLUME_MB[name]
    runs = [_times(name, traffic, transport, twist, random) for _ in range(1 if twist == ONE_RUN else RUNS)]
    points = [
        _point(load, {f"r{number}": float(of[place]) for number, of in enumerate(runs)}, traffic, twist, random)
        for place, load in enumerate(LOADS_GBPS)
    ]
    return Series(
        kind=Kind(model=name, traffic=traffic, transport=transport, ranks=4, workload="ddp"),
        points=tuple(points),
        capacity_bps=25e9,
        theory_bytes=volume_mb * 1e6,
        scales=(100,),
        emulated=True,
    )


def _times(name: str, traffic: str, transport: str, twist: str, random: np.random.Generator) -> np.ndarray:
    """Times of a run over all loads; runs differ by a fifth of a per cent, and their points as much again."""
    left = 25 - LOADS_GBPS
    n, a, b = FITS[name, traffic, transport]
    times = a * np.exp(b / left**n)
    flat = times[0]
    if twist == "another-model":
        other = "vgg16" if name == "bert-large" else "bert-large"
        n, a, b = FITS.get((other, "iperf", "rdma"), FITS[name, traffic, transport])
        times = a * np.exp(b / left**n)
    if twist == "fluid":
        times = np.maximum(flat, VOLUME_MB[name] * 8e-3 / left)
    if twist == "straight":
        times = flat * (1 + LOADS_GBPS / 10)
    if twist in {"constant", "same-traffic"}:
        times = np.full(len(left), 1.0)
    if twist == "doubled":
        times = times * 2
    if twist == "shuffled-loads":
        times = random.permutation(times)
    if twist == NOISE:
        return random.lognormal(0, 1, len(left))
    return times * random.normal(1, 0.002) * random.normal(1, 0.002, len(left))


def _point(
    load_gbps: float, runs: dict[str, float], traffic: str, twist: str, random: np.random.Generator
) -> CurvePoint:
    mean_s = float(np.exp(np.mean(np.log(list(runs.values())))))
    used = {"idle-link": 0.6, "full-link": 0.99, NOISE: 0.0}.get(twist, 0.9) * (0.9 if load_gbps < 20 else 1.0)
    shares = [random.uniform(0.2, 1) if twist == NOISE else random.normal(used, 0.005) for _ in runs]
    links = [SharedLink(port="s", sent_bps=share * 25e9, waiting_s=0.0, drops_per_s=0.0) for share in shares]
    return CurvePoint(
        requested_bps=load_gbps * 1e9,
        load_bps=load_gbps * 1e9,
        mean_s=mean_s,
        error_s=0.002 * mean_s,
        freedom=10.0,
        p99_s=mean_s,
        iterations=100,
        seconds=tuple(np.full(50, seconds) for seconds in runs.values()),
        links=tuple(links) if traffic == "websearch-burst" else (),
        runs=runs,
    )
