"""Zerwas: patterns, flows and rates are the paper's, volumes six models a step, of pair averaging four."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from orchestrator.analysis.stats.statistics import Estimate
from orchestrator.analysis.traffic.traffic import Volume
from orchestrator.analysis.windows.time_to_accuracy import Learning
from orchestrator.papers.zerwas import equation, flows, frameworks, learned, rates, volumes
from orchestrator.papers.zerwas.frameworks import PAIRS, Measured
from orchestrator.papers.zerwas.learned import Learned
from orchestrator.papers.zerwas.published import zerwas
from orchestrator.papers.zerwas.sights import Sight
from orchestrator.report.study.content import Comparison
from tests.helpers.checked import NOISE, ONE_RUN, RUNS

TWISTS = (
    *("doubled", "sextupled", "another-model", "all-synchronous", "theory", "shuffled-sizes", "volume-by-batch"),
    *("full-mesh", "ring-everywhere", "more-flows"),
    *("same-rates", "half-rates", "half-rates-by-batch", "shuffled-times", "late-learning"),
)
HOSTS = ("h1", "h2", "h3", "h4")
RING = ((0, 1), (1, 2), (2, 3), (3, 0))
STAR = ((0, 1), (0, 2), (0, 3))
ALL = tuple((a, b) for a in range(4) for b in range(a))
EDGES = {
    **dict.fromkeys(("tensorflow", "horovod-mpi", "horovod-gloo"), RING),
    "binary-tree-star": ((0, 1), (0, 2), (1, 3)),
    "star": STAR,
    "tree": STAR,
    "clique": ALL,
    PAIRS: ALL,
}
FLOWS = {line.framework: line.flows for line in zerwas().flows}
BIG = {line.framework: line.flows for line in zerwas().big_flows}
PEAKS = {line.framework: line.peak_gbps for line in zerwas().flow_throughput}
BINS = 200


def lines(twist: str, seed: int) -> list[Comparison]:
    """Return every comparison of a whole study."""
    random, printed = np.random.default_rng(seed), zerwas()
    found = _grid(twist, random)
    plain = [one for one in found if one.framework in ("horovod-gloo", PAIRS)]
    sections = (
        volumes.volumes(found, printed),
        volumes.patterns(found, printed),
        flows.flows(found, printed),
        rates.table_one(found, printed),
        rates.table_two(found, printed),
        rates.rhythm(plain, printed),
        rates.batches(found, printed),
        equation.equation(found, printed),
        learned.accuracy(_learned(twist, random), printed),
    )
    return [line for section in sections for line in section.comparisons]


def _grid(twist: str, random: np.random.Generator) -> tuple[Measured, ...]:
    models = [model.model for model in zerwas().models]
    sizes = {model: frameworks.size_of(model, 10) for model in models}
    if twist == "shuffled-sizes":
        sizes = dict(zip(models, random.permutation(list(sizes.values())), strict=True))
        while list(sizes.values()) == sorted(sizes.values()):
            sizes = dict(zip(models, random.permutation(list(sizes.values())), strict=True))
    if twist == "another-model":
        sizes = dict(zip(models, [sizes[models[-1]], *list(sizes.values())[:-1]], strict=True))
    of_batches = ("horovod-gloo", "tensorflow", PAIRS)
    return tuple(
        _measured(twist, random, name=name, model=model, batch=batch, size=sizes[model])
        for name in EDGES
        for model in models
        for batch in ((64, 128, 512) if name in of_batches else (64,))
    )


def _measured(twist: str, random: np.random.Generator, *, name: str, model: str, batch: int, size: float) -> Measured:
    asynchronous = name == PAIRS and twist not in ("all-synchronous", "theory")
    wanted = 6.0 * frameworks.size_of(model, 10) * (4 / 6 if name == PAIRS else 1)
    theory = SimpleNamespace(pairs=((HOSTS[0], HOSTS[1], wanted),), bytes_per_iteration=0.0)
    job = SimpleNamespace(name="training", nodes=HOSTS, ranks=HOSTS, theory=theory, workload="horovod")
    point = SimpleNamespace(job=job, scale=1, mean_s=Estimate(0.1 * batch, np.nan, np.nan))
    one = Measured(point=point, framework=name, model=model, batch=batch, classes=10, losses=None, printed_model=True)
    per_step = (4.0 if asynchronous else 6.0) * size
    per_step *= {"doubled": 2, "sextupled": 6}.get(twist, 1)
    per_step *= batch / 64 if twist == "volume-by-batch" else 1
    one.__dict__["sights"] = tuple(
        _sight(twist, random, run=f"r{number}", name=name, batch=batch, per_step=per_step)
        for number in range(1 if twist == ONE_RUN else RUNS)
    )
    return one


def _sight(twist: str, random: np.random.Generator, *, run: str, name: str, batch: int, per_step: float) -> Sight:
    edges = {"full-mesh": ALL, "ring-everywhere": RING}.get(twist, EDGES[name])
    if twist == "ring-everywhere" and EDGES[name] == RING:
        edges = EDGES[name]
    payload = np.zeros((4, 4))
    for a, b in edges:
        payload[a, b] = 1.0
        payload[b, a] = 0.0005 if edges == RING else 1.0
    per_step *= 1.0 if twist == "theory" else random.normal(1.003, 0.0005)
    per_step *= random.lognormal(0, 1) if twist == NOISE else 1.0
    payload *= per_step / payload.sum()
    more = twist == "more-flows"
    counted = FLOWS.get(name, 24) + (2 if more else 0)
    big = BIG.get(name, 4) + (2 if more else 0) + (8 if twist == "full-mesh" else 0)
    if twist == NOISE:
        payload = random.lognormal(0, 2, (4, 4)) * (1 - np.eye(4)) * per_step
        counted, big = int(random.integers(1, 60)), int(random.integers(1, 12))
    return Sight(
        run=run,
        volume=Volume(hosts=HOSTS, payload=payload, wire=payload * 1.048, flows=counted, big=np.ones(big) / big),
        flows=counted,
        **_rates(name, batch, twist, random),
        width_s=0.01,
    )


def _rates(name: str, batch: int, twist: str, random: np.random.Generator) -> dict[str, np.ndarray]:
    """Bursts of all flows at once, of pair averaging each at times of its own, and less so with a larger batch."""
    busy = np.arange(BINS) % 20 < max(2, round(10 * 64 / batch))
    if twist == "same-rates":
        busy = np.arange(BINS) % 20 < 5
    peak = PEAKS.get(name, 9.6) * random.normal(0.99, 0.002)
    peak *= 0.5 if twist == "half-rates" or (twist == "half-rates-by-batch" and batch > 64) else 1
    apart = name == PAIRS or twist == "shuffled-times"
    series = [random.permutation(busy) if apart else busy for _ in range(4)]
    level = {"tensorflow": 4.9, "horovod-mpi": 8.2, "horovod-gloo": 8.0, PAIRS: 4.5, "binary-tree-star": 7.0}
    total = 5.0 if twist == "same-rates" else level.get(name, 6.0)
    total *= random.normal(1, 0.01)
    if twist == NOISE:
        peak, total = random.lognormal(1, 1), random.lognormal(1, 1)
        series = [random.random(BINS) < random.random() for _ in range(4)]
    big = np.array([np.where(one, peak, 0.0) * random.normal(1, 0.001, BINS) for one in series])
    return {"total": np.full(BINS, total), "big": big}


def _learned(twist: str, random: np.random.Generator) -> list[Learned]:
    found = []
    for name, epoch_mb in (("horovod-gloo", 60.0), ("binary-tree-star", 60.0), (PAIRS, 42.0)):
        each = 60.0 if twist == "all-synchronous" else epoch_mb
        runs = tuple(_course(each, twist, random) for _ in range(1 if twist == ONE_RUN else RUNS))
        found.append(Learned(point=SimpleNamespace(), framework=name, optimizer="adam", runs=runs))
    return found


def _course(epoch_mb: float, twist: str, random: np.random.Generator) -> Learning:
    accuracy = np.array([0.1, 0.12, 0.4, 0.9] if twist == "late-learning" else [0.45, 0.7, 0.82, 0.86])
    accuracy = accuracy + random.normal(0, 0.005, 4)
    if twist == NOISE:
        accuracy, epoch_mb = random.permutation(np.linspace(0.1, 0.9, 4)), epoch_mb * random.lognormal(0, 1)
    epoch = np.arange(1, 5)
    sent = epoch_mb * 1e6 * epoch
    return Learning(epoch=epoch, seconds=2.0 * epoch, sent_bytes=sent, accuracy=accuracy, loss=1.0 / epoch)
