"""Fig 3 and Fig 4: bytes sent in 20 epochs, and from whom to whom."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from orchestrator.papers.zerwas import frameworks
from orchestrator.papers.zerwas.frameworks import BATCH, CALLED, CLASSES, PAIRS, RINGS, SERVERS, Measured, size_of
from orchestrator.papers.zerwas.published import Zerwas
from orchestrator.report.study.content import (
    Comparison,
    Rows,
    Section,
    Table,
    apart,
    at_most,
    between,
    holds,
    near,
    not_measured,
    number,
)

Floats = npt.NDArray[np.float64]

THEORY_WITHIN = 0.03  # of a step's volume
PRINTED_WITHIN = 0.1
RATIO, RATIO_WITHIN = 2 / 3, 0.02  # pair averaging to synchronous SGD, by theory with four workers: 4.0 to 6.0 models
AN_EDGE = 0.05  # of the strongest pair of hosts, from which on a pair is said to exchange gradients
SYNCHRONOUS, ASYNCHRONOUS = 6.0, 4.0  # models that four workers send in a step, by theory


def total_gb(one: Measured, printed: Zerwas) -> float:
    """Return the payload of the whole training, from the measured bytes a step; the batch sets the number of steps."""
    return one.step_payload * printed.steps(one.batch) / 1e9


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
    return near(
        one.called,
        total_gb(one, printed),
        theory_gb,
        within=THEORY_WITHIN,
        unit="GB",
        shown=f"{number(theory_gb)} GB by theory",
        source="Fig 3",
    )


def _ends(grid: Sequence[Measured], printed: Zerwas) -> Iterator[Comparison]:
    """Compare the smallest and the largest volume of the whole grid; of a part only where the end is in it."""
    totals = {(one.model, one.framework): total_gb(one, printed) for one in grid}
    sizes = sorted((size_of(model.model, CLASSES), model.model) for model in printed.models)
    (_, least), (_, most) = sizes[0], sizes[-1]
    ends = {
        "smallest": totals.get((least, PAIRS), math.nan),
        "largest": max(
            (gb for (model, name), gb in totals.items() if model == most and name != PAIRS), default=math.nan
        ),
    }
    for line in printed.volumes:
        yield near(
            f"{line.what} volume of all", ends[line.what], line.gb, within=PRINTED_WITHIN, unit="GB", source=line.source
        )


def _ratios(grid: Sequence[Measured], printed: Zerwas) -> Iterator[Comparison]:
    for model in printed.models:
        mine = {one.framework: one.step_payload for one in grid if one.model == model.model}
        others = [size for name, size in mine.items() if name != PAIRS]
        ratio = mine.get(PAIRS, math.nan) / float(np.mean(others)) if others else math.nan
        yield between(
            f"{model.model}: pair averaging over synchronous SGD",
            ratio,
            RATIO - RATIO_WITHIN,
            RATIO + RATIO_WITHIN,
            printed=1 - printed.pair_averaging.saves,
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
        comparisons=(*_edges(rings, printed), *_relays(grid)),
    )


def _edges(rings: Sequence[Measured], printed: Zerwas) -> Iterator[Comparison]:
    """Compare the ring's edges with it and against it, where a ring measured all models."""
    by_model: dict[str, list[tuple[float, float, float]]] = {}
    for one in rings:
        by_model.setdefault(one.model, []).append(_with_and_against(one))
    each = np.array([np.mean(values, axis=0) for values in by_model.values()])
    whole = len(by_model) == len(printed.models)
    steps, source, edge = printed.steps(BATCH) / 1e9, printed.ring.source, f"{printed.ring.edge_gb:g} GB"
    what = "an edge of the ring, mean over models"
    missing = f"measured with {len(by_model)} of {len(printed.models)} models"
    if not whole:
        yield not_measured(what, edge, source=source, why=missing)
    else:
        along, framed, _ = each.mean(axis=0) * steps
        yield near(
            f"{what}, layer 2, {CLASSES} classes",
            framed,
            printed.ring.edge_gb,
            unit="GB",
            within=PRINTED_WITHIN,
            source=source,
        )
        yield apart(
            f"{what}, payload, {CLASSES} classes",
            along,
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
    if len(each):
        along, _, back = each.mean(axis=0)
        yield at_most("payload against the ring over that with it", back / along, 0.01, source=source)


def _with_and_against(one: Measured) -> tuple[float, float, float]:
    """Return bytes of a step over the mean edge of a ring: payload, layer 2, and payload backwards."""
    found = [window.volume for window in one.sights]
    nodes = one.point.job.nodes
    pairs = [(nodes[place], nodes[(place + 1) % len(nodes)]) for place in range(len(nodes))]

    def mean(way: Sequence[tuple[str, str]], *, wire: bool) -> float:
        return float(np.mean([volume.edge(*pair, wire=wire) for volume in found for pair in way]))

    ways = [(mean(way, wire=False), mean(way, wire=True)) for way in (pairs, [(b, a) for a, b in pairs])]
    (along, framed), (back, _) = sorted(ways, reverse=True)
    return along, framed, back


def _relays(grid: Sequence[Measured]) -> Iterator[Comparison]:
    """Compare the text's claims on each pattern; W1 is the first worker."""
    said = {
        "star": ("W1 with each of the others", {(0, 1), (0, 2), (0, 3)}),
        "tree": ("W1 with each of the others", {(0, 1), (0, 2), (0, 3)}),
        "clique": ("all pairs", {(a, b) for a in range(4) for b in range(a)}),
        PAIRS: ("all pairs", {(a, b) for a in range(4) for b in range(a)}),
        "binary-tree-star": ("W1 with W2 and W3, W2 with W4", {(0, 1), (0, 2), (1, 3)}),
        SERVERS: ("each worker with the server alone", None),
    }
    for name, (called, pairs) in said.items():
        mine = [one for one in grid if one.framework == name]
        what = f"{CALLED[name]}: who exchanges gradients"
        if not mine:
            yield not_measured(what, called, source="section V.A, Fig 4")
            continue
        ours = [exchanges(one) for one in mine]
        wanted = {tuple(sorted(pair)) for pair in pairs} if pairs is not None else _with_server(mine[0])
        yield holds(
            what,
            true=all(one == wanted for one in ours),
            ours=_names(ours[0]),
            printed=called,
            source="section V.A, Fig 4",
        )


def exchanges(one: Measured) -> set[tuple[int, ...]]:
    """Return pairs of hosts that exchange gradients, by their place among the hosts that train or serve."""
    volume = one.sights[0].volume
    both = volume.payload + volume.payload.T
    strong = np.argwhere(both >= AN_EDGE * max(float(both.max()), 1.0))
    hosts = [host for host in volume.hosts if both[volume.hosts.index(host)].any()]
    return {tuple(sorted((hosts.index(volume.hosts[a]), hosts.index(volume.hosts[b])))) for a, b in strong}


def _with_server(one: Measured) -> set[tuple[int, ...]]:
    """Return every pair of a server (its host comes first) and a worker."""
    volume = one.sights[0].volume
    hosts = [host for host in volume.hosts if volume.payload[volume.hosts.index(host)].any()]
    workers = [hosts.index(node) for node in one.point.job.nodes]
    servers = [place for place in range(len(hosts)) if place not in workers]
    return {tuple(sorted((server, worker))) for server in servers for worker in workers}


def _names(pairs: set[tuple[int, ...]]) -> str:
    return ", ".join("-".join(f"W{place + 1}" for place in pair) for pair in sorted(pairs))
