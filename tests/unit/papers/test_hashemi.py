"""Hashemi's study: where curves cross and what is held of orders, of runs whose times are known, and the whole page."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from orchestrator.analysis.compare.points import pooled
from orchestrator.analysis.stats.statistics import Estimate
from orchestrator.core.errors import StoreError
from orchestrator.papers.hashemi import orders, page, scaling, traced
from orchestrator.papers.hashemi.orders import Order
from orchestrator.papers.hashemi.published import published
from orchestrator.papers.hashemi.scaling import Crossing, Curve, crossing, curves, told
from orchestrator.store import rundir
from orchestrator.store.tabular.tables import TableWriter
from tests.helpers.night_runs import write_run


def curve(strategy: str, steps: dict[int, float], *, width: float = 0.001, servers: int = 0) -> Curve:
    return Curve("m", strategy, servers, {n: Estimate(s, s - width, s + width) for n, s in steps.items()}, {})


def crossed(servers: dict[int, float], reduced: dict[int, float], **more: float) -> Crossing:
    return crossing(curve(scaling.SERVERS, servers, servers=2, **more), curve("ring", reduced, **more))


def test_curves_cross_on_the_line_between_two_numbers_of_workers() -> None:
    found = crossed({2: 0.10, 4: 0.20, 6: 0.30}, {2: 0.15, 4: 0.17, 6: 0.18}, width=0.01)
    # Differences -0.05, 0.03, 0.12: zero at 2 + 2 * 5 / 8.
    assert found.value == pytest.approx(3.25)
    half = math.hypot(0.01, 0.01)
    assert found.low == pytest.approx(2 + 2 * (0.05 - half) / 0.08)
    assert found.high == pytest.approx(2 + 2 * (0.05 + half) / 0.08)
    assert told(found, [2, 4, 6]) == "at 3.2 workers (2.9 to 3.6)"


def test_where_means_differ_by_less_than_their_intervals_the_crossing_is_open() -> None:
    found = crossed({2: 0.10, 4: 0.101}, {2: 0.1005, 4: 0.1}, width=0.01)
    assert found.value == pytest.approx(2 + 2 * 0.0005 / 0.0015)
    assert (found.low, found.high) == (-math.inf, math.inf)
    assert told(found, [2, 4]) == "at 2.7 workers (below 2 to above 4)"


@pytest.mark.parametrize(
    ("servers", "text"),
    [
        ({2: 0.05, 4: 0.05}, "not from 2 to 4 workers: servers are faster throughout"),
        ({2: 0.5, 4: 0.5}, "not from 2 to 4 workers: all-reduce is faster throughout"),
        ({2: 0.05, 4: 0.0995}, "not from 2 to 4 workers by their means; by their intervals 4.0 to above 4"),
    ],
)
def test_curves_that_do_not_cross_say_who_is_faster(servers: dict[int, float], text: str) -> None:
    found = crossed(servers, {2: 0.1, 4: 0.1})
    assert math.isnan(found.value)
    assert told(found, [2, 4]) == text


def test_a_crossing_that_turns_back_counts_from_where_all_reduce_stays_faster() -> None:
    found = crossed({2: 0.2, 4: 0.1, 6: 0.2}, {2: 0.15, 4: 0.15, 6: 0.15})
    assert found.value == pytest.approx(5)


def test_a_step_without_an_interval_leaves_the_crossing_of_the_means() -> None:
    found = crossed({2: 0.1, 4: 0.2}, {2: 0.15, 4: 0.15}, width=math.nan)
    assert found.value == pytest.approx(3)
    assert told(found, [2, 4]) == "at 3.0 workers, by their means; a step time has no interval"


def run(results, number: int, workload: dict, seconds: float, *, ranks: int, spread: float = 0.01, name: str = "p2p"):
    """A run of 100 iterations, with the row of `variation` that its times give."""
    path = write_run(
        results,
        name=f"e{number}",
        sweep=False,
        seed=number,
        repetition=number,
        spread=0.0,
        seconds={"w1": seconds},
        also={"workload": {name: workload}, "testbed": {"local": {"hosts": 8}}},
    )
    took = np.random.default_rng(number).normal(seconds, spread * seconds, 100)
    with TableWriter(path / "tables", run=path.name) as writer:
        writer.add(
            "variation",
            {
                "window_name": ["w1"],
                "job": ["training"],
                "rank": [-1],
                "iterations": [100],
                "mean_s": [took.mean()],
                "cv": [took.std(ddof=1) / took.mean()],
                "p50_s": [np.median(took)],
                "p95_s": [0.1],
                "p99_s": [0.1],
                "max_s": [took.max()],
                "straggler_share": [0.01],
                "efficiency": [0.9],
                "overlapped": [0.7],
                "orders": [3],
            },
        )
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["jobs"] = [
        {
            "name": "training",
            "workload": name,
            "model": workload["model"],
            "compute": "emulated",
            "ranks": [{"rank": rank, "local_rank": 0, "node": "h1", "device": "cpu"} for rank in range(ranks)],
        }
    ]
    (path / "manifest.json").write_text(json.dumps(manifest))
    return rundir.entry_at(path)


KEYS = ("cv", "straggler_share")
RUNS = 3  # of each order: of a single run there is no interval


@pytest.fixture
def studied(tmp_path):
    """Servers that cross both all-reduces, and orders of which TAC's is the best."""
    entries, number = [], 1
    for strategy, servers, steps in (
        ("parameter-server", 2, {2: 0.1, 4: 0.2, 6: 0.3}),
        ("ring", 2, {2: 0.15, 4: 0.17, 6: 0.18}),
        ("halving-doubling", 2, {2: 0.15, 4: 0.17, 6: 0.18}),
    ):
        for workers, seconds in steps.items():
            ranks = workers + (servers if strategy == "parameter-server" else 0)
            hosts = [f"h{number + 1}" for number in range(ranks)]
            workload = {"model": "resnet50", "strategy": strategy, "servers": servers, "hosts": hosts}
            entries.append(run(tmp_path / "r", number, workload, seconds, ranks=ranks))
            number += 1
    for order, seconds in ((None, 0.5), ("random", 0.48), ("reverse", 0.5), ("layer", 0.4), ("tac", 0.4)):
        workload = {"model": "resnet50", "strategy": "parameter-server", "compute_time": 0.3, "order": order}
        for _ in range(RUNS):
            entries.append(run(tmp_path / "r", number, workload, seconds, ranks=3))
            number += 1
    return entries


def test_curves_are_of_what_was_measured_by_all_reduce_too(studied) -> None:
    found = {one.name: one for one in curves(pooled(studied))}
    assert set(found) == {"2 parameter servers", "ring", "halving-doubling"}
    assert all(list(one.steps) == [2, 4, 6] for one in found.values())
    assert crossing(found["2 parameter servers"], found["ring"]).value == pytest.approx(3.25, abs=0.1)


def test_orders_are_held_to_the_best_chosen_one(studied, tmp_path) -> None:
    section = orders.section(pooled(studied), published())
    verdicts = {line.what: line.verdict for line in section.comparisons}
    assert verdicts["TAC's mean step over that of the best chosen order (layer)"] == "agrees"
    assert verdicts["variation (cv) of TAC's step over that in random orders"] == "differs", "both vary by 1 %"
    assert verdicts["mean step in random orders over TAC's"] == "agrees"
    saved = next(line for line in section.comparisons if line.what == "step time that TAC saves of random")
    assert saved.ours.startswith("16.")
    assert [row[0] for row in section.tables[0].rows] == ["none", "random", "reverse", "layer", "tac"]


def test_single_runs_of_orders_have_no_interval(studied) -> None:
    section = orders.section(pooled(studied[9::RUNS]), published())
    (told,) = (line for line in section.comparisons if line.what == "mean step in random orders over TAC's")
    assert told.verdict == "cannot tell"
    assert "one run has no interval: measure repetitions" in told.why


def test_an_order_that_is_slower_or_varies_more_misses(studied, tmp_path) -> None:
    workload = {"model": "resnet50", "strategy": "parameter-server", "compute_time": 0.3, "order": "tac"}
    worse = studied[:-RUNS]
    worse += [run(tmp_path / "worse", 50 + number, workload, 0.44, ranks=3) for number in range(RUNS)]
    section = orders.section(pooled(worse), published())
    verdicts = {line.what: line.verdict for line in section.comparisons}
    assert verdicts["TAC's mean step over that of the best chosen order (layer)"] == "differs"


@pytest.mark.parametrize("spread", [0.1, 0.3, 1.0])
def test_noisier_runs_reproduce_no_more(spread: float) -> None:
    """Steps in TAC's order are a tenth longer than in the best chosen one: however noisy runs are, that is not near."""
    random = np.random.default_rng(1)

    def order(name: str, mean_s: float) -> Order:
        means_s = list(mean_s * random.lognormal(0, spread, 3))
        return Order(name, mean_s=Estimate(1, 1, 1), means_s=means_s, cvs=means_s, variation=dict.fromkeys(KEYS, 0.1))

    def near() -> str:
        found = {"random": order("random", 1.0), "layer": order("layer", 1.0), "tac": order("tac", 1.1)}
        (line,) = (one for one in orders.compared(found, published()) if one.check == "near-optimum")
        return line.verdict

    assert [near() for _ in range(200)].count("agrees") <= 10


def test_the_whole_page_and_any_part_of_it(studied, tmp_path) -> None:
    whole = page.content(studied, tmp_path)
    assert whole.made_of == "14 points of 24 runs"
    assert [section.title.partition(":")[0] for section in whole.sections] == ["Fig 1", "Fig 2", "Accomplishment 4"]
    assert (tmp_path / "scaling.svg").exists()
    for entry in studied:
        one = page.content([entry], tmp_path)
        assert all(line.source for section in one.sections for line in section.comparisons)
    with pytest.raises(StoreError, match="nothing to show"):
        page.content([], tmp_path)


def test_a_trace_shows_ranks_that_recorded_their_transfers(tmp_path) -> None:
    workload = {"model": "vgg16", "strategy": "parameter-server"}
    entry = run(tmp_path / "r", 1, workload, 0.1, ranks=2, name="tensorflow")
    lanes = {"receive": "communication", "forward": "compute", "send": "communication"}
    rows = [(rank, k, name, lane) for rank in (0, 1) for k in range(3, 9) for name, lane in lanes.items()]
    n = len(rows)
    with TableWriter(entry.path / "tables", run=entry.run) as writer:
        writer.add(
            "spans",
            {
                "job": ["training"] * n,
                "rank": [row[0] for row in rows],
                "window_name": ["w1"] * n,
                "iteration": [row[1] for row in rows],
                "lane": [row[3] for row in rows],
                "span": [row[2] for row in rows],
                "what": [f"tensor {row[1] % 2}" for row in rows],
                "peer": [-1] * n,
                "bytes": [9] * n,
                "sequence": [0] * n,
                "start_ns": [10**9 * row[1] for row in rows],
                "end_ns": [10**9 * row[1] + 10**8 for row in rows],
            },
        )
    section = traced.section(pooled([entry]), published(), tmp_path)
    (line,) = section.comparisons
    assert line.verdict == "cannot tell", "one run"
    assert line.ours.startswith("6 receives and 6 sends of a worker, receives in 2 orders")
    assert [picture.name for picture in section.pictures] == ["trace-tensorflow-s-parameter-server"]
    assert "rank 1 computes" in section.pictures[0].svg
