"""Fig 3 and Fig 4: bytes sent in 20 epochs, and from whom to whom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.stats.agreement import over_runs, ratio, repetitions
from orchestrator.analysis.stats.statistics import UNKNOWN
from orchestrator.analysis.traffic.traffic import Volume
from orchestrator.papers.zerwas import frameworks
from orchestrator.papers.zerwas.frameworks import BATCH, CALLED, CLASSES, PAIRS, RINGS, SERVERS, Measured, size_of
from orchestrator.papers.zerwas.published import Zerwas
from orchestrator.papers.zerwas.sights import Sight
from orchestrator.report.study.content import (
    Comparison,
    Rows,
    Section,
    Table,
    apart,
    cannot_tell,
    claimed,
    counted,
    judged,
    number,
)

Floats = npt.NDArray[np.float64]

AN_EDGE = 0.05  # of the strongest pair of hosts, from which on a pair is said to exchange gradients
SYNCHRONOUS, ASYNCHRONOUS = 6.0, 4.0  # models that four workers send in a step, by theory


def total_gb(one: Measured, printed: Zerwas) -> float:
    """Return the payload of the whole training, from the measured bytes a step; the batch sets the number of steps."""
    return one.step_payload * printed.steps(one.batch) / 1e9


def totals_gb(one: Measured, printed: Zerwas) -> list[float]:
    """Return the payload of the whole training by each captured run."""
    return [payload * printed.steps(one.batch) / 1e9 for payload in one.step_payloads]


def volumes(found: Sequence[Measured], printed: Zerwas) -> Section:
    """Compare Fig 3: every model by every framework, with theory and the printed totals."""
    whole = frameworks.plain(found)
    grid = [one for one in whole if one.framework != SERVERS]
    return Section(
        title="Fig 3: volume of 20 epochs",
        text=(
            f"TCP payload of all hosts in a step, times the {printed.steps(BATCH):,} steps of 20 epochs with {BATCH} "
            f"images a worker, for CIFAR-10's {CLASSES} classes. Fig 3 draws each bar and prints none: each of ours is "
            "held to theory, their ends and ratios to what the text says. Of pair averaging theory says 4.0 models a "
            "step, of a parameter server 8.0, of all others 6.0."
        ),
        comparisons=(*(_against_theory(one, printed) for one in whole), *_ends(grid, printed), *_ratios(grid, printed)),
    )


def _against_theory(one: Measured, printed: Zerwas) -> Comparison:
    theory_gb = one.theory * printed.steps(one.batch) / 1e9
    return judged(
        printed.check("volume"),
        one.called,
        over_runs(totals_gb(one, printed)),
        theory_gb,
        unit="GB",
        shown=f"{number(theory_gb)} GB by theory",
        source="Fig 3",
    )


def _ends(grid: Sequence[Measured], printed: Zerwas) -> Iterator[Comparison]:
    """Compare the smallest and the largest volume of the whole grid; of a part only where the end is in it."""
    totals = {(one.model, one.framework): over_runs(totals_gb(one, printed)) for one in grid}
    sizes = sorted((size_of(model.model, CLASSES), model.model) for model in printed.models)
    (_, least), (_, most) = sizes[0], sizes[-1]
    ends = {
        "smallest": totals.get((least, PAIRS), UNKNOWN),
        "largest": max(
            (gb for (model, name), gb in totals.items() if model == most and name != PAIRS),
            key=lambda gb: gb.value,
            default=UNKNOWN,
        ),
    }
    check = printed.check("volume-ends")
    for line in printed.volumes:
        yield judged(check, f"{line.what} volume of all", ends[line.what], line.gb, unit="GB", source=line.source)


def _ratios(grid: Sequence[Measured], printed: Zerwas) -> Iterator[Comparison]:
    for model in printed.models:
        mine = {one.framework: one.step_payloads for one in grid if one.model == model.model}
        others = repetitions(payloads for name, payloads in mine.items() if name != PAIRS)
        yield judged(
            printed.check("pair-averaging"),
            f"{model.model}: pair averaging over synchronous SGD",
            ratio(mine.get(PAIRS, []), [float(np.mean(of_all)) for of_all in others]),
            1 - printed.pair_averaging.saves,
            source=printed.pair_averaging.source,
        )


def classes(found: Sequence[Measured], printed: Zerwas) -> Section:
    """Compare volumes for 10 and 1000 classes, by theory and as far as measured."""
    rows: Rows = []
    for model in printed.models:
        for count in (CLASSES, 1000):
            size = size_of(model.model, count)
            steps = printed.steps(BATCH)
            mine = [one for one in frameworks.plain(found, classes=count) if one.model == model.model]
            shown = {one.framework: f"{number(total_gb(one, printed))}" for one in mine}
            synchronous = [f"{text} ({CALLED[name]})" for name, text in shown.items() if name in RINGS]
            rows.append(
                (
                    model.model,
                    str(count),
                    f"{size / 1e6:.1f}",
                    f"{model.mb:g}",
                    number(SYNCHRONOUS * size * steps / 1e9),
                    synchronous[0] if synchronous else "-",
                    number(ASYNCHRONOUS * size * steps / 1e9),
                    shown.get(PAIRS, "-"),
                )
            )
    head = (
        "model",
        "classes",
        "size (MB)",
        "printed size (MB)",
        "synchronous, theory (GB)",
        "measured",
        "pair averaging, theory (GB)",
        "measured",
    )
    caption = (
        "The printed ends, 140 and 4,000 GB, fit ten classes (140 and 3,980 by theory) and not a thousand (219 and "
        "4,170). The printed sizes are those of models for a thousand classes."
    )
    return Section(title="Ten classes or a thousand", tables=(Table("Classes", caption, head, rows),))


def patterns(found: Sequence[Measured], printed: Zerwas) -> Section:
    """Compare Fig 4: from whom to whom."""
    grid = frameworks.plain(found)
    rings = [one for one in grid if one.framework in RINGS]
    return Section(
        title="Fig 4: who sends how much to whom",
        text=(
            "GB of 20 epochs from row to column, payload, mean over the models measured (ten classes). Of two hosts at "
            f"least {AN_EDGE:.0%} of the strongest pair's bytes count as an exchange of gradients."
        ),
        comparisons=(*_edges(rings, printed), *_relays(grid, printed)),
    )


def _edges(rings: Sequence[Measured], printed: Zerwas) -> Iterator[Comparison]:
    """Compare the ring's edges with it and against it, where a ring measured all models."""
    by_model: dict[str, list[list[Edges]]] = {}
    for one in rings:
        by_model.setdefault(one.model, []).append(_edges_of_runs(one))
    each = [_mean(of_all) for of_all in repetitions(_of_model(of_rings) for of_rings in by_model.values())]
    steps, source, edge = printed.steps(BATCH) / 1e9, printed.ring.source, f"{printed.ring.edge_gb:g} GB"
    what = "an edge of the ring, mean over models"
    check = printed.check("ring-edge")
    if len(by_model) < len(printed.models):
        missing = f"measured with {len(by_model)} of {len(printed.models)} models"
        yield cannot_tell(check, what, edge, source=source, why=missing)
    else:
        yield judged(
            check,
            f"{what}, layer 2, {CLASSES} classes",
            over_runs(one.framed * steps for one in each),
            printed.ring.edge_gb,
            unit="GB",
            source=source,
        )
        yield apart(
            f"{what}, payload, {CLASSES} classes",
            over_runs(one.along * steps for one in each),
            printed.ring.edge_gb,
            unit="GB",
            source=source,
            why="the paper counts headers, which are 4.8 % of full frames",
        )
        more = np.mean([1.5 * size_of(model.model, 1000) for model in printed.models]) * steps
        yield apart(
            f"{what}, 1000 classes by theory",
            float(more),
            printed.ring.edge_gb,
            unit="GB",
            source=source,
            why="theory, payload; 10 classes fit the printed totals",
        )
    yield claimed(
        printed.check("ring-back"),
        "payload against the ring over that with it",
        over_runs(one.back / one.along for one in each),
        printed=f"below {printed.ring.reverse_below_gb:g} of {edge}",
        source=source,
    )


class Edges(NamedTuple):
    """Bytes of a step over the mean edge of a ring: payload, layer 2, and payload backwards."""

    along: float
    framed: float
    back: float


def _mean(found: Sequence[Edges]) -> Edges:
    return Edges(*np.mean(found, axis=0).tolist())


def _of_model(of_rings: Sequence[Sequence[Edges]]) -> list[Edges]:
    """Return the edges of a model in each repetition, mean over the frameworks that make rings."""
    return [_mean(of_all) for of_all in repetitions(of_rings)]


def _edges_of_runs(one: Measured) -> list[Edges]:
    """Return the edges of each run; a ring turns either way."""
    nodes = one.point.job.nodes
    pairs = [(nodes[place], nodes[(place + 1) % len(nodes)]) for place in range(len(nodes))]
    ways = [_of_way(one, way) for way in (pairs, [(b, a) for a, b in pairs])]
    found = []
    for there, back in zip(*ways, strict=True):
        (along, framed), (backwards, _) = sorted((there, back), reverse=True)
        found.append(Edges(along, framed, backwards))
    return found


def _of_way(one: Measured, way: Sequence[tuple[str, str]]) -> list[tuple[float, float]]:
    """Return payload and layer-2 bytes over the mean of these edges, by run."""

    def per_edge(window: Sight, *, wire: bool) -> float:
        return float(np.mean([window.volume.edge(*pair, wire=wire) for pair in way]))

    return list(zip(*(one.over(partial(per_edge, wire=wire)) for wire in (False, True)), strict=True))


def _relays(grid: Sequence[Measured], printed: Zerwas) -> Iterator[Comparison]:
    """Compare the text's claims on each pattern; W1 is the first worker."""
    said = {
        "star": ("W1 with each of the others", {(0, 1), (0, 2), (0, 3)}),
        "tree": ("W1 with each of the others", {(0, 1), (0, 2), (0, 3)}),
        "clique": ("all pairs", {(a, b) for a in range(4) for b in range(a)}),
        PAIRS: ("all pairs", {(a, b) for a in range(4) for b in range(a)}),
        "binary-tree-star": ("W1 with W2 and W3, W2 with W4", {(0, 1), (0, 2), (1, 3)}),
        SERVERS: ("each worker with the server alone", None),
    }
    check, source = printed.check("pattern"), "section V.A, Fig 4"
    for name, (called, pairs) in said.items():
        mine = [one for one in grid if one.framework == name]
        what = f"{CALLED[name]}: who exchanges gradients"
        if not mine:
            yield cannot_tell(check, what, called, source=source)
            continue
        wanted = {tuple(sorted(pair)) for pair in pairs} if pairs else None
        true = [_are(one, wanted) for one in mine]
        ours = _names(exchanges(mine[0].sights[0].volume))
        yield counted(check, what, true, ours=ours, printed=called, source=source)


def _are(one: Measured, wanted: set[tuple[int, ...]] | None) -> list[bool]:
    """Return by run whether the pairs are those (None: every worker with every server) in each of its windows."""

    def share(window: Sight) -> float:
        return float(exchanges(window.volume) == (_with_server(one, window) if wanted is None else wanted))

    return [found == 1 for found in one.over(share)]


def exchanges(volume: Volume) -> set[tuple[int, ...]]:
    """Return pairs of hosts that exchange gradients, by their place among the hosts that train or serve."""
    both = volume.payload + volume.payload.T
    strong = np.argwhere(both >= AN_EDGE * max(float(both.max()), 1.0))
    hosts = [host for host in volume.hosts if both[volume.hosts.index(host)].any()]
    return {tuple(sorted((hosts.index(volume.hosts[a]), hosts.index(volume.hosts[b])))) for a, b in strong}


def _with_server(one: Measured, window: Sight) -> set[tuple[int, ...]]:
    """Return every pair of a server (its host comes first) and a worker."""
    volume = window.volume
    hosts = [host for host in volume.hosts if volume.payload[volume.hosts.index(host)].any()]
    workers = [hosts.index(node) for node in one.point.job.nodes if node in hosts]
    servers = [place for place in range(len(hosts)) if place not in workers]
    return {tuple(sorted((server, worker))) for server in servers for worker in workers}


def _names(pairs: set[tuple[int, ...]]) -> str:
    return ", ".join("-".join(f"W{place + 1}" for place in pair) for pair in sorted(pairs))
