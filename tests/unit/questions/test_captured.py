"""Bytes, flows and rates of captured trainings, from made traffic whose volumes are known."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from orchestrator.analysis.traffic import traffic
from orchestrator.core.errors import ConfigError
from orchestrator.questions import captured
from orchestrator.questions.captured import Captured
from orchestrator.questions.flows import flows
from orchestrator.questions.rates import flow_series, rate_series, rates
from orchestrator.questions.rows import Measured
from orchestrator.questions.sending import sending
from orchestrator.questions.volumes import edges, volumes
from orchestrator.store import rundir
from tests.helpers.made_traffic import BEGAN_NS, BYTES_A_MS, ITERATION_MS, MS, SENDS_MS, made
from tests.helpers.night_runs import write_run

STEPS, SCALE, RUNS = 20, 100, 2
EDGE = BYTES_A_MS * SENDS_MS  # what made traffic sends over an edge of its ring in a step
HOSTS = [f"h{number}" for number in (1, 2, 3, 4)]


class _Run:
    scale = SCALE


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """Two runs of a ring of four, each with a captured window of 20 of its 40 steps."""

    def entry(seed):
        path = write_run(
            tmp_path,
            name=f"e{seed}",
            sweep=False,
            seed=seed,
            repetition=seed,
            seconds={"w1": 0.1},
            iterations=STEPS,
            also={"workload": {"horovod": {"controller": "mpi", "model": "mobilenet_v2", "classes": 10, "batch": 64}}},
        )
        manifest = json.loads((path / "manifest.json").read_text())
        ranks = [{"rank": rank, "node": node} for rank, node in enumerate(HOSTS)]
        theory = {"bytes_per_iteration": EDGE, "parameters": 1, "source": "s"}
        training = {
            "name": "training",
            "workload": "horovod",
            "model": "mobilenet_v2",
            "ranks": ranks,
            "theory": theory,
        }
        (path / "manifest.json").write_text(json.dumps(manifest | {"jobs": [training], "scale": SCALE}))
        return rundir.entry_at(path)

    def windows(point):
        whole = made(iterations=2 * STEPS, order=tuple(HOSTS))
        whole = replace(whole, name=np.where(whole.name == "train", "training", whole.name))
        begin = BEGAN_NS + 10 * ITERATION_MS * MS
        part = traffic.within(whole, begin, begin + STEPS * ITERATION_MS * MS)
        for window in point.windows:
            yield Captured(window=window, run=_Run(), traffic=part, whole=whole, steps=STEPS)

    monkeypatch.setattr(captured, "windows", windows)
    return Measured(entries=tuple(entry(seed) for seed in range(1, RUNS + 1)))


COLUMNS = {"batch": "workload.*.batch", "controller": "workload.*.controller", "lost": "conditions.*.loss.share"}


def test_a_row_is_a_point_and_run_at_full_size(measured):
    rows = volumes(measured, columns=COLUMNS, defaults={"lost": -1.0})
    assert [(row["repetition"], row["batch"], row["controller"], row["lost"]) for row in rows] == [
        (1, 64, "mpi", -1.0),
        (2, 64, "mpi", -1.0),
    ]
    assert rows[0]["payload_bytes"] == pytest.approx(4 * EDGE * SCALE)
    assert rows[0]["layer2_bytes"] == pytest.approx(4 * SCALE * SENDS_MS * (BYTES_A_MS * 1514 // 1448 + 66))
    assert rows[0]["theory_bytes"] == 4 * EDGE * rows[0]["scale"]
    assert rows[0]["model_bytes"] == 4 * 2_236_682
    assert volumes(measured, columns=COLUMNS, where={"batch": [128, 512]}) == []
    assert len(volumes(measured, columns=COLUMNS, where={"batch": [64, 512]})) == RUNS


def test_edges_know_the_places_of_workers(measured):
    rows = [row for row in edges(measured) if row["repetition"] == 1]
    assert len(rows) == 12
    ways = {(row["src_worker"], row["dst_worker"]): row["payload_bytes"] for row in rows}
    assert {way for way, sent in ways.items() if sent} == {(1, 2), (2, 3), (3, 4), (4, 1)}
    assert ways[4, 1] == pytest.approx(EDGE * SCALE)
    assert all(np.isnan(row["theory_bytes"]) for row in rows), "theory does not say who sends to whom"


def test_flows_are_of_the_run_and_big_ones_of_the_window(measured):
    assert [(row["flows"], row["big"]) for row in flows(measured)] == [(8.0, 4.0)] * RUNS


def test_rates_are_at_full_size(measured):
    edge_gbps = (BYTES_A_MS * 1514 // 1448) * 8e-6 * SCALE
    share = SENDS_MS / ITERATION_MS
    (row, _) = rates(measured, of="biggest")
    assert row["mean_gbps"] == pytest.approx(edge_gbps * share, rel=0.02)
    assert row["peak_gbps"] == pytest.approx(edge_gbps, rel=0.02)
    assert row["sending_gbps"] == pytest.approx(edge_gbps, rel=0.02)
    assert row["duty"] == pytest.approx(share, abs=0.02)
    assert row["together"] == pytest.approx(1.0, abs=0.01)
    (total, _) = rates(measured)
    assert total["mean_gbps"] == pytest.approx(4 * (edge_gbps + 66 * 8e-6 * SCALE) * share, rel=0.02)
    assert {one["line"] for one in rates(measured, of="pairs")} == {"h1-h2", "h2-h3", "h3-h4", "h4-h1"}


def test_series_have_a_row_a_bin(measured):
    rows = rate_series(measured, of="pairs", seconds=0.25)
    assert len(rows) == RUNS * 4 * 25
    assert {row["repetition"] for row in rows} == {1, 2}
    assert max(row["at_s"] for row in rows) == pytest.approx(0.24)
    whole = flow_series(measured)
    assert {row["line"] for row in whole} == set(range(1, 9))
    assert {row["repetition"] for row in whole} == {1}
    assert sum(row["gbps"] for row in whole if row["line"] == 1) > sum(row["gbps"] for row in whole if row["line"] == 8)


def test_what_a_training_and_cross_traffic_send_stands_side_by_side(measured):
    edge_gbps = BYTES_A_MS * 8e-6 * SCALE
    share = SENDS_MS / ITERATION_MS
    rows = sending(measured)
    assert [(row["line"], row["repetition"]) for row in rows] == [
        ("training", 1),
        ("training", 2),
        ("iperf0", 1),
        ("iperf0", 2),
    ]
    training, cross = rows[0], rows[2]
    assert training["mean_gbps"] == pytest.approx(4 * edge_gbps * share, rel=0.01)
    assert training["peak_gbps"] == training["p99_gbps"] == pytest.approx(4 * edge_gbps, rel=0.01)
    assert training["sending_gbps"] == pytest.approx(4 * edge_gbps, rel=0.01)
    assert training["duty"] == pytest.approx(share, abs=0.01)
    assert training["period_s"] == pytest.approx(ITERATION_MS / 1e3, rel=0.01)
    assert training["strength"] > 0.9
    assert training["period_mb"] == pytest.approx(4 * EDGE * SCALE / 1e6, rel=0.02)
    assert (training["pairs"], cross["pairs"]) == (4, 1)
    assert training["together"] == pytest.approx(1.0, abs=0.01)
    assert cross["duty"] == 1
    assert np.isnan(cross["period_s"])
    assert np.isnan(cross["period_mb"])
    assert np.isnan(cross["together"])
    assert cross["mean_gbps"] == pytest.approx(10_000 * 8e-6 * SCALE, rel=0.01)


def test_sources_of_cross_traffic_are_one_where_that_is_asked(measured):
    assert {row["line"] for row in sending(measured, cross="all")} == {"training", "cross"}
    with pytest.raises(ConfigError, match="each, all"):
        sending(measured, cross="none")


def test_the_times_of_a_dilated_run_are_undilated_already(measured):
    """A run's tables have them divided back: dividing again had five times the rate of a run dilated five times."""
    plain = [row["mean_gbps"] for row in sending(measured)]
    for entry in measured.entries:
        path = entry.path / "manifest.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"dilation": 5}))
    dilated = Measured(entries=tuple(rundir.entry_at(entry.path) for entry in measured.entries))
    assert {point.manifest.dilation for point in dilated.points} == {5}
    assert [row["mean_gbps"] for row in sending(dilated)] == plain
