"""Trainings that are split over ranks, several a host: what crosses the network, and how such runs end."""

from __future__ import annotations

import numpy as np
import pytest

from tests.helpers import wire
from tests.helpers.orch_runs import alone, killed_in_its_window, sealed
from tests.helpers.skipping import needs_torch

pytestmark = [pytest.mark.testbed, needs_torch]

TINY = {"layers": 3, "hidden": 768, "sequence": 512, "vocabulary": 50257}
TWO_A_HOST = ["h1", "h1", "h2", "h2", "h3", "h3", "h4", "h4"]
PTD = {
    "model": TINY,
    "pipeline": 2,
    "tensor": 2,
    "data": 2,
    "batch": 4,
    "microbatches": 4,
    "compute_time": "60ms",
    "hosts": TWO_A_HOST,
}
MOE = {"model": {**TINY, "layers": 4}, "experts": 6, "compute_time": "60ms", "hosts": ["h1", "h2", "h3"]}


@pytest.mark.parametrize("mapping", ["customized", pytest.param("default", marks=pytest.mark.variants)])
def test_what_crosses_the_network_follows_the_mapping(tmp_path, mapping):
    run = sealed(tmp_path, alone({"ptd": {**PTD, "mapping": mapping}}, hosts=4))
    told = wire.told(run)
    # Tensor ranks share a host, so that most of what they say stays there. Each other host is a stage or a replica.
    assert (told > 0).sum() == 8
    assert wire.apart(wire.captured(run), told) < 0.07
    (row,) = run.rows("training")
    assert row["sent_bytes"] == pytest.approx(row["theory_bytes"], rel=0.03)


@pytest.mark.variants
def test_tokens_travel_as_routed(tmp_path):
    run = sealed(tmp_path, alone({"moe": MOE}, hosts=4))
    sent, hosts = wire.captured(run), run.traffic.hosts
    rows = [row for row in run.rows("routing") if row["window_name"] == "w1"]
    assert {row["rank"] for row in rows} == {0, 1, 2}
    counted = len({row["iteration"] for row in rows})
    theory = run.manifest.jobs[0].theory
    dense = theory.parameters * 2 * 2 * 2 / 3 + 2 * 6 * 32 * 4 * 2 * 2 / 3  # ring of three: fp16, gates as fp32
    told = np.zeros_like(sent)
    for rank in range(3):
        told[hosts.index(f"h{rank + 1}"), hosts.index(f"h{(rank - 1) % 3 + 1}")] += dense * counted
    for row in rows:
        if row["rank"] != row["peer"]:
            told[hosts.index(f"h{row['rank'] + 1}"), hosts.index(f"h{row['peer'] + 1}")] += row["bytes"]
    assert wire.apart(sent, told) < 0.07
    assert sent.sum() == pytest.approx(told.sum(), rel=0.03)
    assert len({row["nonuniform_bytes"] for row in rows}) > counted / 2


@pytest.mark.variants
def test_shards_are_gathered_twice_and_scattered_once(tmp_path):
    run = sealed(tmp_path, alone({"fsdp": {"model": "mobilenet_v2", "compute_time": "60ms"}}))
    (row,) = run.rows("training")
    # Gloo reduces all of it before it scatters: that counts twice.
    assert row["theory_bytes"] == pytest.approx(4 * 2 / 3 * 4 * 35_048, rel=0.01)
    assert row["sent_bytes"] == pytest.approx(row["theory_bytes"], rel=0.03)
    # Its all-reduce sends to the rank before, its all-gather to the one after: half of it each way.
    assert wire.apart(wire.captured(run), wire.told(run)) < 0.07


@pytest.mark.variants
def test_a_rank_killed_in_its_step_ends_the_run(tmp_path):
    ptd = {**PTD, "data": 1, "hosts": TWO_A_HOST[:4]}
    err = killed_in_its_window(tmp_path, alone({"ptd": ptd}), launch="training-rank3")
    assert "training-rank3 ended with status -9" in err
