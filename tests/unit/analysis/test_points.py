"""Points of a study: windows that measured the same are one, whatever they are called, and no others."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from orchestrator.analysis.compare import points
from orchestrator.analysis.traffic import traffic
from orchestrator.store import rundir
from tests.helpers.made_traffic import BEGAN_NS, BYTES_A_MS, ITERATION_MS, MS, SENDS_MS, made
from tests.helpers.night_runs import write_run

EXPERIMENT = {"workload": {"ddp": {"model": "vgg16", "batch": 64}}, "conditions": [{"loss": {"share": 0.01}}]}
LOADED = [{"iperf": {"from": "h1", "to": "h2", "load": "4gbit"}}]


def run(results, *, seed=1, windows=("w1",), loads=None, also=None, **more):
    """A run whose n-th window has iterations of n tenths of a second."""
    path = write_run(
        results,
        name=f"e{seed}",
        sweep=False,
        seed=seed,
        repetition=seed,
        spread=0.0,
        seconds={name: 0.1 * (place + 1) for place, name in enumerate(windows)},
        also={
            **EXPERIMENT,
            "windows": [{"name": name, "traffic": (loads or {}).get(name, [])} for name in windows],
            **(also or {}),
        },
        **more,
    )
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["jobs"] = [{"name": "training", "workload": "ddp", "model": "vgg16", "ranks": []}]
    (path / "manifest.json").write_text(json.dumps(manifest))
    return rundir.entry_at(path)


def sizes(found):
    return sorted(len(point.windows) for point in found)


def test_windows_that_were_set_alike_are_pooled_whatever_they_are_called(tmp_path):
    entries = [
        run(tmp_path, seed=1),
        run(tmp_path, seed=2, windows=("other",)),
        run(tmp_path, seed=3, also={"measure": {"iterations": 7}, "repetitions": 3, "name": "n"}),
    ]
    (point,) = points.pooled(entries)
    assert len(point.windows) == 3
    assert [len(seconds) for seconds in point.seconds] == [100, 100, 100]
    assert point.mean_s.low < 0.1 < point.mean_s.high


def test_runs_are_the_unit_of_a_points_mean(tmp_path):
    """Windows of one run share what sets runs apart: they are no repetitions."""
    (one,) = points.pooled([run(tmp_path, seed=1, windows=("w1", "w2", "w3"))])
    assert len(one.windows) == 3
    assert one.mean_s.value == pytest.approx((0.1 * 0.2 * 0.3) ** (1 / 3), rel=0.01)
    assert math.isnan(one.mean_s.low)
    (single,) = points.pooled([run(tmp_path, seed=2)])
    assert math.isnan(single.mean_s.low)


@pytest.mark.parametrize(
    "also",
    [
        {"workload": {"ddp": {"model": "vgg16", "batch": 128}}},
        {"conditions": []},
        {"testbed": {"local": {"scale": 50}}},
        {"collect": ["tcpdump"]},
    ],
)
def test_windows_of_one_name_that_were_set_differently_are_two_points(tmp_path, also):
    assert sizes(points.pooled([run(tmp_path, seed=1), run(tmp_path, seed=2, also=also)])) == [1, 1]


def test_windows_with_another_load_are_another_point(tmp_path):
    entries = [run(tmp_path, seed=seed, windows=("w1", "w2"), loads={"w2": LOADED}) for seed in (1, 2)]
    found = points.pooled(entries)
    assert sizes(found) == [2, 2]
    assert {point.value("traffic.*.*.load") for point in found} == {None, "4gbit"}
    assert [point.mean_s.value for point in found] == pytest.approx([0.1, 0.2], rel=0.01)


def test_windows_that_are_invalid_or_checks_of_others_are_left_out(tmp_path):
    entries = [run(tmp_path, seed=1, windows=("w1", "w2"), invalid=("w2",), loads={"w2": LOADED})]
    assert sizes(points.pooled(entries)) == [1]
    manifest = json.loads((entries[0].path / "manifest.json").read_text())
    manifest["sweep"] = {
        "id": "x",
        "name": "s",
        "points": {"w1": {"point": "p", "repetition": 1, "recheck": True, "values": {}}},
    }
    (entries[0].path / "manifest.json").write_text(json.dumps(manifest))
    assert points.pooled([rundir.entry_at(entries[0].path)]) == ()


def test_what_was_set_is_found_by_its_path(tmp_path):
    found = points.pooled([run(tmp_path)])
    (point,) = found
    assert point.value("workload.*.model") == "vgg16"
    assert point.value("conditions.0.loss.share") == 0.01
    assert point.value("conditions.1.loss.share") is None
    assert point.value("workload.horovod.model", "none") == "none"
    assert points.where(found, {"workload.*.batch": 64, "workload.horovod.model": None}) == found
    assert points.where(found, {"workload.*.batch": 128}) == ()


def test_a_volume_is_what_all_hosts_sent_in_a_step_at_full_size():
    whole = made(iterations=40)
    part = traffic.within(whole, BEGAN_NS + 10 * ITERATION_MS * MS, BEGAN_NS + 30 * ITERATION_MS * MS)
    found = traffic.volume(part, steps=20, scale=100)
    edge = BYTES_A_MS * SENDS_MS * 100
    assert found.step_payload == pytest.approx(4 * edge)
    assert found.edge("h1", "h4") == pytest.approx(edge)
    assert found.edge("h4", "h1") == 0
    assert found.edge("h4", "h1", wire=True) == pytest.approx(66 * SENDS_MS * 100)
    assert found.edge("h1", "h9") == 0
    assert found.wire.sum() == pytest.approx(4 * (BYTES_A_MS * 1514 // 1448 + 66) * SENDS_MS * 100)
    assert found.flows == 8, "one a direction, without cross traffic and SSH"
    assert found.big == pytest.approx([0.25] * 4)
    assert traffic.volume(part, steps=20, scale=100, job="another").flows == 0


def test_a_volume_of_silence_is_none():
    silent = traffic.within(made(iterations=2), 0, 1)
    found = traffic.volume(silent, steps=1, scale=1)
    assert (found.step_payload, found.flows, len(found.big)) == (0, 0, 0)
    assert isinstance(found.big, np.ndarray)
