"""Zerwas et al. as a document: what its SQL makes of rows whose values are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from orchestrator.experiment import paperfile
from orchestrator.papers import answering, reading
from tests.helpers.answered import zerwas as made

FOLDER = Path("playbooks/papers/zerwas")
RACK = "testbed={inventory: playbooks/testbeds/example-rack.yaml}"


@pytest.fixture(scope="module")
def paper():
    return reading.paper(FOLDER / paperfile.FILE)


def answer(paper, title, change=lambda row: row):
    figure = next(one for one in paper.file.figures if one.title.startswith(title))
    first = [change(row) for row in made.FIRST[figure.title](np.random.default_rng(1))]
    return answering.changed(paper, first, figure.ask[1:])


def test_steps_and_sizes_are_those_that_the_authors_code_has(paper):
    rows = answer(paper, "Fig 3", lambda row: {**row, "payload_bytes": 6 * row["model_bytes"]})
    volumes = {row["model"]: row["gb"] for row in rows if row["framework"] == "horovod-mpi"}
    assert volumes == pytest.approx(
        {"mobilenet_v2": 210.4, "densenet201": 1704.0, "resnet50": 2213.6, "resnet101": 4000.3}, abs=0.05
    )


def test_models_batches_classes_and_losses_that_fig_3_is_not_of_are_left_out(paper):
    others = ({"batch": 128}, {"classes": 1000}, {"lost": 0.0}, {"model": "vgg16"}, {"compute": "real"})
    for other in others:
        assert answer(paper, "Fig 3", lambda row, other=other: {**row, **other}) == []


@pytest.mark.parametrize("name", sorted(made.FRAMEWORKS))
def test_frameworks_are_told_apart_by_what_was_set(paper, name):
    rows = made.finished(list(made.points(np.random.default_rng(1), name)))
    figure = next(one for one in paper.file.figures if one.title.startswith("Fig 3"))
    found = answering.changed(paper, rows, figure.ask[1:2])
    assert {row["framework"] for row in found} == {name}


def test_a_ring_turns_either_way_and_needs_all_models(paper):
    def turned(row):
        return {**row, "src_worker": row["dst_worker"], "dst_worker": row["src_worker"]}

    for change in (lambda row: row, turned):
        rings = [row for row in answer(paper, "Fig 4", change) if row["part"] == "ring"]
        along, against = ([r["layer2_gb"] for r in rings if r["direction"] == way] for way in ("with it", "against it"))
        assert along == pytest.approx([566] * 3, rel=0.01)
        assert max(against) < 1
    rows = answer(paper, "Fig 4", lambda row: {**row, "model": "resnet50"})
    assert [row for row in rows if row["part"] == "ring"] == []


def test_the_mix_of_the_regression_is_the_authors_whatever_frameworks_were_measured(paper):
    def theory(row):
        models = 4 if row["strategy"] == "pair-averaging" else 6
        return {**row, "payload_bytes": models * row["model_bytes"], "layer2_bytes": models * row["model_bytes"]}

    rows = answer(paper, "Equation 1", theory)
    slopes = {row["of"]: row["coefficient"] for row in rows if row["regressor"] == "model_size"}
    assert slopes["ours"] == pytest.approx((22 * 6 + 4 * 4) / 26)
    assert slopes["the authors"] == pytest.approx(5.86, abs=0.005)
    levels = {row["level"] for row in rows if row["of"] == "each point once"}
    assert levels >= {"128", "512", "tensorflow", "horovod-gloo", "kungfu", "pair-averaging", "star", "clique"}


def test_an_accuracy_is_reached_between_two_epochs(paper):
    rows = answer(
        paper, "Fig 8", lambda row: {**row, "accuracy": 0.25 * row["epoch"], "sent_bytes": 6e7 * row["epoch"]}
    )
    reached = {(row["training"], row["level"]): row["mb"] for row in rows if row["part"] == "level"}
    assert reached["tree, adam", 60] == pytest.approx(144)
    assert reached["tree, adam", 80] == pytest.approx(192)
    assert [row["saved"] for row in rows if row["part"] == "saved"] == pytest.approx([0] * 6)


def test_losses_are_ratios_of_the_step_without_any(paper):
    rows = answer(paper, "Fig 10")
    ratios = {(row["framework"], row["percent"]): row["ratio"] for row in rows if row["repetition"] == 1}
    assert ratios["tensorflow-nccl", 0.01] == pytest.approx(2, rel=0.01)
    assert ratios["tensorflow", 2.0] == pytest.approx(8, rel=0.01)
    assert ratios["tensorflow", 0.0] == 1


def test_the_cluster_version_has_losses_batches_and_accuracy_and_fits_a_rack():
    study = paperfile.load(FOLDER / paperfile.FILE, [RACK], version="cluster")
    found = {one.file.name: one.points for one in study.sweeps}
    assert {name.removeprefix("zerwas-") for name in found} == {
        "cluster-frameworks",
        "cluster-losses",
        "cluster-batches",
        "accuracy",
    }
    workloads = {point.values["workload"] for point in found["zerwas-cluster-frameworks"]}
    assert workloads >= {"horovod-mpi-nccl", "horovod-mpi-hierarchical", "binary-tree-star"}
    losses = [point.values["conditions.1.loss.share"] for point in found["zerwas-cluster-losses"]]
    assert sorted(losses) == ["0%", "0.01%", "0.1%", "1%", "2%"]


def test_the_quick_version_repeats_whatever_it_judges():
    study = paperfile.load(FOLDER / paperfile.FILE, version="quick")
    assert all(one.file.repetitions >= 2 for one in study.sweeps)
    (frameworks, *_) = study.sweeps
    for framework in ("horovod-mpi", "pair-averaging"):
        mine = [p.values["workload.*.model"] for p in frameworks.points if p.values["workload"] == framework]
        assert mine == [model for model in made.MODELS if model != "densenet201"], "a line needs three"
