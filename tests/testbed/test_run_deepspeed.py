"""DeepSpeed for real over three hosts: what travels in each stage of ZeRO and in a pipeline, and how it ends."""

from __future__ import annotations

import pytest

from tests.helpers import wire
from tests.helpers.orch_runs import alone, killed_in_its_window, orch, sealed, write
from workloads.common import environments

pytestmark = [
    pytest.mark.testbed,
    pytest.mark.frameworks,
    pytest.mark.skipif(not environments.is_built("torch"), reason="no DeepSpeed here: run `make frameworks`"),
]

MOBILENET, VGG = 35_048, 1_383_575  # parameters, scaled
# Each gather of a module's parameters has some 600 bytes of gloo's own, which no scale divides: few and large ones.
ZERO3 = {"model": "vgg16", "compute_time": "100ms", "bucket": "400mb"}
PIPELINE = {"pipeline_stages": 3, "microbatches": 4, "activation": "2mb"}


def experiment(*, link="25gbit", **options):
    workload = {"model": "mobilenet_v2", "compute_time": "60ms", "bucket": "4mb", "log": True, **options}
    return alone({"deepspeed": workload}, link=link)


@pytest.mark.parametrize(
    ("options", "parameters", "rings"),
    [
        pytest.param({"zero_stage": 1}, MOBILENET, 3, marks=pytest.mark.variants),
        pytest.param({"zero_stage": 2}, MOBILENET, 3, marks=pytest.mark.variants),
        ({"zero_stage": 3, "link": "100gbit", **ZERO3}, VGG, 4),
    ],
    ids=["zero-1", "zero-2", "zero-3"],
)
def test_a_stage_of_zero_sends_what_theory_says(tmp_path, options, parameters, rings):
    count = 15 if options["zero_stage"] == 3 else 40  # its many gathers keep ranks together, so that edges weigh little
    run = sealed(tmp_path, {**experiment(**options), "measure": {"warmup": 2, "iterations": count, "at_most": "60s"}})
    (row,) = run.rows("training")
    # An all-reduce and an all-gather; in stage 3 two of these, and a reduce-scatter that gloo does as an all-reduce.
    assert row["theory_bytes"] == pytest.approx(rings * 2 / 3 * 4 * parameters, rel=0.01)
    # A gather that is missing would be a third of it.
    assert row["sent_bytes"] == pytest.approx(row["theory_bytes"], rel=0.04)
    # Gloo's all-reduce sends to the rank before, its all-gather to the one after.
    assert wire.apart(wire.captured(run), wire.told(run)) < 0.07
    logged = [line for line in run.rows("communication") if line["window_name"] == "w1"]
    assert {line["rank"] for line in logged} == {0, 1, 2}
    iterations = {line["iteration"] for line in logged}
    assert len(iterations) == count
    gathers = [line for line in logged if line["operation"] == "all_gather_into_tensor" and line["rank"] == 0]
    # DeepSpeed counts a rank's part of what it gathers.
    told = sum(3 * line["bytes"] * line["count"] for line in gathers) / count
    assert told == pytest.approx((2 if rings == 4 else 1) * 4 * parameters, rel=0.01)


@pytest.mark.variants
def test_a_pipeline_passes_microbatches_on_and_back(tmp_path):
    run = sealed(tmp_path, experiment(**PIPELINE, zero_stage=0, hosts=["h1", "h1", "h2", "h2", "h3", "h3"]))
    told = wire.told(run)
    # Replicas of a stage share a host: between hosts there is nothing but four activations, and their gradients.
    assert sorted(told[told > 0]) == pytest.approx([2 * 4 * 20_000] * 4)
    assert wire.apart(wire.captured(run), told) < 0.07
    (row,) = run.rows("training")
    assert row["sent_bytes"] == pytest.approx(row["theory_bytes"], rel=0.03)


@pytest.mark.variants
def test_a_rank_killed_in_its_step_ends_the_run(tmp_path):
    err = killed_in_its_window(tmp_path, experiment(zero_stage=2))
    assert "training-rank1 ended with status -9" in err


def test_without_its_environment_nothing_is_started(tmp_path):
    path = write(tmp_path, experiment(python="/no/such/python"))
    status, _, err = orch("run", path, "--results", tmp_path / "results", "--json", "--no-report")
    assert status == 1
    assert "orch prepare --only torch" in err
