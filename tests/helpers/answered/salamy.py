"""Salamy: curves through what the thesis prints, and flows and queues as it describes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

RUNS = 3
SPREAD = 0.002  # of a run, and as much again of each of its points
THEORY_MB = {"resnet50": 153.3, "densenet161": 172.1, "vgg16": 830.1, "bert-large": 2011.0}  # of four ranks
ALONE_S = {"resnet50": 0.16, "densenet161": 0.38, "vgg16": 0.37, "bert-large": 0.84}
WIDE = (0, 4, 8, 11, 14, 16, 18, 19.5, 20.5)
BURST = "websearch-burst"

Random = np.random.Generator
Rows = list[dict[str, Any]]


def curve(
    random: Random,
    model: str,
    traffic: str,
    times: Mapping[float, float],
    *,
    transport: str = "tcp",
    tail: Callable[[float], float] = lambda load: 1.1,
) -> Rows:
    """Return rows of `curves`: these times (s) by load (Gbit/s) in each of RUNS repetitions."""
    ranks = 4 if traffic == "iperf" else 3
    rows = []
    for repetition in range(1, RUNS + 1):
        run = random.normal(1, SPREAD)
        for load, seconds in times.items():
            took = seconds * run * random.normal(1, SPREAD)
            rows.append(
                {
                    "model": model,
                    "traffic": traffic,
                    "transport": transport,
                    "ranks": ranks,
                    "workload": "ddp",
                    "dilation": 1,
                    "set": "",
                    "requested_gbps": float(load),
                    "load_gbps": float(load),
                    "point_gbps": float(load),
                    "seconds": took,
                    "p50_s": took,
                    "p99_s": took * tail(load) * random.normal(1, SPREAD),
                    "variance_s": 0.001,
                    "iterations": 100.0,
                    "theory_mb": THEORY_MB[model] * (1 if ranks == 4 else 8 / 9),
                    "capacity_gbps": 25.0,
                    "scale": 100,
                    "run": f"r{repetition}",
                    "repetition": repetition,
                }
            )
    return rows


def around(*points: tuple[float, float], alone_s: float = 0.0) -> dict[float, float]:
    """Return times by load that are those of these points, measured a little below and above each of them."""
    found = {0.0: alone_s} if alone_s else {}
    for load, seconds in points:
        found |= {load - 0.05: seconds, load + 0.05: seconds}
    return found


def exponential(a_s: float, b: float, n: float, loads: tuple[float, ...] = WIDE) -> dict[float, float]:
    """Return times by load on A exp(B / (25 - load)^n)."""
    return {load: a_s * float(np.exp(b / (25 - load) ** n)) for load in loads}


def slow_downs(random: Random) -> Rows:
    return [
        *curve(random, "resnet50", BURST, around((8, 0.17), (14, 0.25), (20, 0.64), alone_s=0.16)),
        *curve(random, "bert-large", BURST, around((8, 1.0), (14, 2.0), (20, 6.72), alone_s=0.84)),
    ]


def through(random: Random, *, traffic: str, points: Mapping[str, tuple[tuple[float, float], ...]]) -> Rows:
    """Return curves that begin at the printed time without cross traffic and go through these points."""
    return [
        row
        for model, of in points.items()
        for row in curve(random, model, traffic, around((6, 1.1 * ALONE_S[model]), *of, alone_s=ALONE_S[model]))
    ]


def fitted(random: Random, *curves: tuple[str, str, str, float, float, float]) -> Rows:
    """Return curves on fits: model, traffic, transport, A, B and n of each."""
    return [
        row
        for model, traffic, transport, a_s, b, n in curves
        for row in curve(random, model, traffic, exponential(a_s, b, n), transport=transport)
    ]


def text_of_iperf(random: Random) -> Rows:
    flat = dict.fromkeys((0, 4, 8.1, 14), 1.0)
    return [
        *curve(random, "resnet50", "iperf", dict.fromkeys(flat, 0.16) | around((20.46, 0.4))),
        *curve(random, "densenet161", "iperf", dict.fromkeys(flat, 0.38) | around((20.46, 0.5))),
        *curve(random, "vgg16", "iperf", {0: 0.37, 4: 0.43, 8: 0.48, 8.1: 0.482, 14: 0.68, 20.5: 2.6}),
        *curve(random, "bert-large", "iperf", {0: 0.84, 4: 0.98, 8: 1.1, 8.1: 1.11, 14: 1.6} | around((20.46, 4.45))),
    ]


def spare(
    random: Random,
    model: str,
    kinds: Mapping[str, float],
    loads: tuple[float, ...] = (4, 8, 11, 14, 16, 18, 19.5, 20.5),
) -> Rows:
    """Return curves of a model that leave so much (Gbit/s) unused at every load."""
    rows: Rows = []
    for traffic, unused in kinds.items():
        theory = THEORY_MB[model] * (1 if traffic == "iperf" else 8 / 9)
        times = {load: theory * 8 / 1000 / (25 - load - unused) for load in loads}
        rows += curve(random, model, traffic, {0: theory * 8 / 1000 / 24, **times})
    return rows


def kinds_of_traffic(random: Random) -> Rows:
    def tail(load: float, *, heavy: float) -> float:
        return 1.05 if load < 15 else heavy

    flat = {0: 0.16, 7.9: 0.165, 8.1: 0.165, 14: 0.17}
    return [
        *curve(random, "resnet50", "iperf", flat | {19.9: 0.25, 20.1: 0.25}),
        *curve(random, "resnet50", "websearch", flat | {19.9: 0.31, 20.1: 0.31}, tail=partial(tail, heavy=1.5)),
        *curve(random, "resnet50", BURST, flat | {19.9: 0.56, 20.1: 0.56}, tail=partial(tail, heavy=2.0)),
    ]


def transports(random: Random) -> Rows:
    heavy = {
        "resnet50": {0: 0.16, 7.9: 0.165, 8.1: 0.165, 19.9: 0.3, 20.1: 0.3},
        "vgg16": {0: 0.37, 7.9: 0.4, 8.1: 0.4, 19.9: 2.0, 20.1: 2.0},
    }
    rows: Rows = []
    for model, times in heavy.items():
        rows += curve(random, model, "websearch", times, transport="rdma")
        slower = 1.0 if model == "resnet50" else 1.3
        light = {load: seconds * (slower if load < 10 else 1.0) for load, seconds in times.items()}
        rows += curve(random, model, "websearch", light, transport="tcp")
    return [{**row, "set": f", over {row['transport']}"} for row in rows]


def flows(random: Random) -> Rows:
    """Return rows of `link_flows`: rates while sending as Table 3.11 has them, and equal means."""
    printed = {
        ("bert-large", 8.0): (9.82, 9.46),
        ("bert-large", 20.0): (3.62, 3.27),
        ("resnet50", 8.0): (8.42, 8.40),
        ("resnet50", 20.0): (7.24, 4.13),
    }
    return [
        {
            "model": model,
            "set": "",
            "dilation": 1,
            "at_gbps": load,
            "repetition": repetition,
            "flow": number,
            "gbps": 5.0 * random.normal(1, SPREAD),
            "sending_gbps": rate * random.normal(1, SPREAD),
        }
        for (model, load), rates in printed.items()
        for number, rate in enumerate((*rates, load), 1)
        for repetition in range(1, RUNS + 1)
    ]


def queues(random: Random) -> Rows:
    return [
        {
            "model": "vgg16",
            "traffic": BURST,
            "set": "",
            "requested_gbps": load,
            "load_gbps": load,
            "repetition": repetition,
            "used_pct": share * random.normal(1, SPREAD),
            "idle_gbps": 2.5,
            "waiting_ms": 1.0,
            "drops_per_s": 10.0,
        }
        for load, share in ((8.0, 60.0), (14.0, 80.0), (20.0, 90.0))
        for repetition in range(1, RUNS + 1)
    ]


ON_FITS = {
    "eq 3.3": (("bert-large", "iperf", "rdma", 0.618, 9.95, 1.0), ("vgg16", "iperf", "rdma", 0.254, 10.75, 1.0)),
    "eq 3.5": (("bert-large", "websearch", "tcp", 0.202, 7.25, 0.5),),
    # A fluid link has the B that is printed of BERT-large.
    "Table 3.9": (("resnet50", "websearch", "tcp", 0.0645, 3.311, 0.5),),
    "Table 3.10": (("bert-large", BURST, "tcp", 0.268, 7.31, 0.5), ("resnet50", BURST, "tcp", 0.0862, 4.174, 0.5)),
}


def on_fits(of: str) -> Callable[[Random], Rows]:
    return lambda random: fitted(random, *ON_FITS[of])


def beside(traffic: str, **points: tuple[tuple[float, float], ...]) -> Callable[[Random], Rows]:
    of = {model.replace("_", "-"): found for model, found in points.items()}
    return lambda random: through(random, traffic=traffic, points=of)


FIRST: Mapping[str, Callable[[Random], Rows]] = {
    "Abstract: slow-down at 80 % of the link": slow_downs,
    "Equation 3.3: the form of the curves beside iperf": on_fits("eq 3.3"),
    "Fits beside iperf (eq 3.3)": on_fits("eq 3.3"),
    "Table 3.2: congestion points beside iperf": beside("iperf", vgg16=((13.99, 0.6765),), resnet50=((18.1, 0.2116),)),
    "Table 3.3: the most congested points beside iperf": beside(
        "iperf", bert_large=((20.46, 5.257),), vgg16=((18.48, 1.28),), resnet50=((20.79, 0.423),)
    ),
    "Section 3.2: what the text says of iperf": text_of_iperf,
    "Equation 3.5: the form of the curves beside consistent web search": on_fits("eq 3.5"),
    "Table 3.4: congestion points beside consistent web search": beside("websearch", vgg16=((15.7, 0.852),)),
    "Table 3.5: the most congested points beside consistent web search": beside(
        "websearch", bert_large=((21.82, 13.49),), vgg16=((21.81, 5.224),)
    ),
    "Equation 3.6: the form of the curves beside bursts": lambda random: curve(
        random, "vgg16", BURST, exponential(0.4, 60, 2.0, (0, 4, 8, 11, 14, 15.5, 16.8))
    ),
    "Table 3.6: congestion points beside bursts": beside(
        BURST, vgg16=((16.6, 0.8812),), bert_large=((14.6, 1.803),), resnet50=((18.4, 0.2463),)
    ),
    "Table 3.7: the most congested points beside bursts": beside(
        BURST, bert_large=((24.653, 183.3),), vgg16=((21.399, 25.44),), resnet50=((24.653, 11.48),)
    ),
    "Table 3.8: spare capacity": lambda random: spare(random, "vgg16", {"iperf": 1.12, "websearch": 2.39, BURST: 2.51}),
    "Section 3.4: steps of spare capacity between kinds of traffic": lambda random: spare(
        random, "resnet50", {"iperf": 1.2, "websearch": 2.4, BURST: 2.45}, (8, 16, 18, 19.5, 20.5)
    ),
    "Section 3.4: what a better use of the link would gain": beside(BURST, bert_large=((19.8, 5.3),)),
    "Section 3.4.1: bursts against consistent web search": kinds_of_traffic,
    "Section 3.4.1: tails at 80 % against 30 % of the link": kinds_of_traffic,
    "Section 3.4.2: order of the kinds of traffic at 80 % of the link": kinds_of_traffic,
    "Table 3.9, Figs B-1 and B-3: RDMA against TCP": on_fits("Table 3.9"),
    "Section 3.4.2, appendix B.1: what the text says of RDMA and TCP": transports,
    "Table 3.10: fits beside bursts": on_fits("Table 3.10"),
    "Table 3.11: mean rates of the flows": flows,
    "Section 3.5: times at 80 % over those at 30 % of the link": lambda random: curve(
        random, "bert-large", "websearch", {0: 0.84, 7.9: 1.37, 8.1: 1.37, 14: 1.8, 19.9: 2.74, 20.1: 2.74}
    ),
    "Conclusion: use of the bottleneck": queues,
}
