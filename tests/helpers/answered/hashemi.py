"""Hashemi: servers are faster with few workers and slower with many, and TAC's order is as good as the best one."""

from __future__ import annotations

RUNS = (1, 2, 3)
STEPS_S = {"parameter-server": {4: 0.27, 10: 0.55}, "ring": {4: 0.36, 10: 0.42}}
ORDERS = {"random": (0.48, 0.08), "layer": (0.4, 0.012), "tic": (0.4, 0.01), "tac": (0.4, 0.01)}  # mean (s), variation
BUCKETS = {"layer": (5, 4, 3, 2, 1, 0), "tic": (5, 3, 4, 2, 1, 0), "tac": (5, 3, 4, 1, 2, 0)}


def steps(draw):
    return [
        {
            "workload": "p2p",
            "model": "vgg16",
            "ranks": workers + (4 if strategy == "parameter-server" else 0),
            "scale": 100,
            "strategy": strategy,
            "p2p_servers": 4,
            "tf_servers": None,
            "trace": False,
            "bucket": None,
            "compute_time": None,
            "link": 25e9,
            "repetition": repetition,
            "run": f"{strategy} {workers} {repetition}",
            "seconds": seconds * draw.normal(1, 0.005),
        }
        for strategy, of in STEPS_S.items()
        for workers, seconds in of.items()
        for repetition in RUNS
    ]


def orders(draw):
    return [
        {
            "workload": "p2p",
            "model": "inception_v3",
            "scale": 20,
            "strategy": "parameter-server",
            "order": order,
            "servers": 1,
            "graph": True,
            "trace": False,
            "repetition": repetition,
            "run": f"{order} {repetition}",
            "seconds": seconds * draw.normal(1, 0.005),
            "cv": cv * draw.normal(1, 0.05),
            "p99_s": seconds * 1.1,
            "straggler_share": 0.01,
            "efficiency": 0.9,
            "overlapped": 0.7,
            "orders": 1.0,
        }
        for order, (seconds, cv) in ORDERS.items()
        for repetition in RUNS
    ]


def pulls(draw):
    del draw
    return [
        {
            "workload": "p2p",
            "model": "inception_v3",
            "strategy": "parameter-server",
            "order": order,
            "servers": 1,
            "graph": True,
            "trace": False,
            "repetition": repetition,
            "run": f"{order} {repetition}",
            "rank": rank,
            "iteration": iteration,
            "lane": "communication",
            "span": "receive",
            "what": f"bucket {bucket}",
            "begin_ms": 1.0 * place,
            "end_ms": place + 1.0,
            "place": place,
        }
        for order, buckets in BUCKETS.items()
        for repetition in RUNS
        for rank in (1, 2)
        for iteration in (20, 21)
        for place, bucket in enumerate(buckets)
    ]


def traced(draw):
    del draw
    lanes = {"receive": "communication", "forward": "compute", "send": "communication"}
    return [
        {
            "workload": "tensorflow",
            "model": "vgg16",
            "strategy": "parameter-server",
            "order": "none",
            "repetition": repetition,
            "run": str(repetition),
            "rank": rank,
            "iteration": iteration,
            "lane": lane,
            "span": span,
            "begin_ms": 10.0 * iteration + place,
            "end_ms": 10.0 * iteration + place + 1.0,
        }
        for repetition in RUNS
        for rank in (0, 1)
        for iteration in (10, 11)
        for place, (span, lane) in enumerate(lanes.items())
    ]


FIRST = {
    "Fig 1: a distributed trace": traced,
    "Fig 2: parameter servers and all-reduce over workers": steps,
    "Accomplishment 4: the order of transfers": orders,
    "Accomplishment 4: orders on a graph with branches": pulls,
}
