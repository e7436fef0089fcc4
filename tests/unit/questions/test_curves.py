"""Curves over cross traffic from sealed runs: which points are of one curve, and the time between them."""

from __future__ import annotations

import json

import numpy as np
import pytest
import yaml

from orchestrator.analysis.compare import selection
from orchestrator.questions import curves
from orchestrator.questions.rows import Measured
from tests.helpers.night_runs import write_run

LOADS_GBPS = (0, 4, 8, 12, 16, 18, 20, 21)


def write_curve(results, *, model="resnet50", ranks=4, traffic="iperf", transport="tcp", seed=1, burst=False, **also):
    """A run with a window a load, flat up to 16 Gbit/s."""
    levels = {f"l{load}": 0.16 if load <= 16 else 0.16 + 0.05 * (load - 16) for load in LOADS_GBPS}
    run = write_run(
        results, name=f"{model}-{traffic}", sweep=False, seconds=levels, iterations=20, seed=seed, repetition=seed
    )
    manifest = json.loads((run / "manifest.json").read_text())
    theory = 2 * (ranks - 1) / ranks * 25557032 * 4 / 100
    manifest["topology"]["links"] = [{"host": "h1", "device": "eth0", "rate": 25e9}]
    manifest["jobs"] = [
        {
            "name": "training",
            "workload": "ddp",
            "model": model,
            "compute": "emulated",
            "ranks": [{"rank": rank, "node": f"h{rank + 1}"} for rank in range(ranks)],
            "theory": {"bytes_per_iteration": theory, "parameters": 25557032, "source": "s"},
        }
    ]
    sent = theory * 1.005 if transport == "tcp" else 0.0
    for window, load in zip(manifest["windows"], LOADS_GBPS, strict=True):
        row = {"job": "training", "iterations": 20, "mean_s": 1.0, "p50_s": 1.0, "p99_s": 1.0}
        window["training"] = [{**row, "sent_bytes": sent, "theory_bytes": theory}]
        load_row = {"source": traffic, "src": "h4", "dst": "h5", "requested_bps": load * 1e7}
        window["loads"] = [{**load_row, "achieved_bps": load * 0.99e7}] if load else []
    (run / "manifest.json").write_text(json.dumps(manifest))
    source = {"from": "h1", "to": "h5", **({"burst": {"width": "1ms"}} if burst else {})}
    windows = [
        {"name": f"l{load}", "traffic": [{traffic: {**source, "load": f"{load}gbit"}}] if load else []}
        for load in LOADS_GBPS
    ]
    workload = {"workload": {"ddp": {"hosts": ranks, "transport": transport}}}
    (run / "experiment.yaml").write_text(yaml.safe_dump({"windows": windows, **workload, **also}))
    return run


def rows(store):
    entries = [entry for path in sorted(store.glob("[!.]*")) for entry in selection.choose(store, path.name).entries]
    return curves.curves(Measured(entries=tuple(entries)))


def test_points_of_repetitions_are_one_curve_and_without_traffic_they_are_in_each(tmp_path):
    for seed in (1, 2):
        write_curve(tmp_path, seed=seed)
    write_curve(tmp_path, ranks=3, traffic="websearch", burst=True, seed=5)
    found = rows(tmp_path)
    iperf = [row for row in found if row["traffic"] == "iperf"]
    assert {(row["requested_gbps"], row["repetition"]) for row in iperf} == {
        (float(load), number) for load in LOADS_GBPS for number in (1, 2)
    }
    assert [row["load_gbps"] for row in iperf if row["requested_gbps"] == 8] == pytest.approx([7.92, 7.92])
    assert [row["theory_mb"] for row in iperf] == pytest.approx([153.3] * len(iperf), rel=0.001)
    burst = [row for row in found if row["traffic"] == "websearch-burst"]
    assert sorted(row["requested_gbps"] for row in burst) == list(map(float, LOADS_GBPS))
    assert len(found) == len(iperf) + len(burst)
    assert {row["set"] for row in found} == {""}


@pytest.mark.parametrize(
    ("also", "told"),
    [
        ({"conditions": [{"loss": {"share": "1%"}}]}, ", share 1%"),
        ({"testbed": {"local": {"link": "10gbit"}}}, ", link 10gbit"),
    ],
)
def test_what_sets_curves_apart_is_told_and_they_share_no_point(tmp_path, also, told):
    write_curve(tmp_path, seed=1, name="n", repetitions=2, measure={"iterations": 9})
    write_curve(tmp_path, seed=2, **also)
    found = rows(tmp_path)
    assert {row["set"] for row in found} == {"", told}
    assert {row["repetition"] for row in found} == {1}


def test_transports_and_ranks_are_told(tmp_path):
    write_curve(tmp_path, traffic="websearch", seed=1)
    write_curve(tmp_path, traffic="websearch", seed=2, transport="rdma")
    assert {(row["transport"], row["set"]) for row in rows(tmp_path)} == {
        ("tcp", ", over tcp"),
        ("rdma", ", over rdma"),
    }


def test_a_rate_that_a_condition_sets_is_the_capacity(tmp_path):
    write_curve(tmp_path, conditions=[{"rate": {"host": "h1", "rate": "10gbit"}}])
    assert {row["capacity_gbps"] for row in rows(tmp_path)} == {10.0}


def test_the_time_at_a_load_lies_between_measured_points_and_is_never_extrapolated(tmp_path):
    write_curve(tmp_path)
    for at, expected in ((19.0, 0.16 + 0.05 * 3.2), (24.0, None)):
        asked = [{**row, "at_gbps": at} for row in rows(tmp_path)]
        found = curves.interpolated(asked, of=["seconds"], over="load_gbps", at="at_gbps", by=["model", "set"])
        if expected is None:
            assert found == []
        else:
            assert found[0]["seconds"] == pytest.approx(expected, rel=0.05)
            assert (found[0]["load_gbps"], found[0]["theory_mb"]) == (at, pytest.approx(153.3, rel=0.001))
            assert "p99_s" not in found[0], "what differs between points is of none"


def test_between_points_that_are_far_apart_nothing_is_interpolated():
    """From 0 to 17.9 Gbit/s a straight line had a flat curve grow by a tenth at 8."""
    rows = [{"model": "m", "repetition": 1, "load": load, "s": s, "at": 8.0} for load, s in ((0, 1.0), (17.9, 1.2))]
    how = {"of": ["s"], "over": "load", "at": "at", "by": ["model"]}
    assert curves.interpolated(rows, **how, apart=7) == []
    assert curves.interpolated([{**row, "at": 17.5} for row in rows], **how, apart=7) == []
    (near,) = curves.interpolated([{**row, "at": 18.2} for row in rows], **how, apart=7, near=0.5)
    assert (near["s"], near["load"]) == (1.2, 18.2)
    (on,) = curves.interpolated([{**row, "at": 17.9} for row in rows], **how, apart=7)
    assert on["s"] == pytest.approx(1.2)


def test_every_iteration_of_the_nearest_point_is_told(tmp_path):
    write_curve(tmp_path)
    entries = selection.choose(tmp_path, "resnet50-iperf").entries
    found = curves.curve_iterations(Measured(entries=tuple(entries)), loads_gbps=[8.0, 20.0, 24.0], near_gbps=1.25)
    counts = {at: sum(row["at_gbps"] == at for row in found) for at in (8.0, 20.0, 24.0)}
    assert counts == {8.0: 20, 20.0: 20, 24.0: 0}
    assert np.mean([row["seconds"] for row in found if row["at_gbps"] == 20]) == pytest.approx(0.36, rel=0.05)
