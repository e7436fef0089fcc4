"""What the sweeps of Salamy's thesis hold, and what its drawings draw."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from orchestrator.experiment import paperfile
from orchestrator.papers import answering, drawing, reading
from orchestrator.report.style import look
from orchestrator.sweep import sweepplan
from tests.helpers.answered import salamy

FILE = Path(__file__).parents[3] / "playbooks/papers/salamy/paper.yaml"
MODELS = {"resnet50", "vgg16", "densenet161", "bert-large"}


def sweeps(version, *overrides):
    found = paperfile.load(FILE, overrides, version=version, local=True)
    return {one.file.name.removeprefix("salamy-"): one for one in found.sweeps}


def models(definition, workload="ddp"):
    return {point.resolved["workload"][workload]["model"] for point in definition.points}


def test_what_is_judged_in_the_short_version_has_two_repetitions():
    found = sweeps("quick")
    assert all(one.file.repetitions >= 2 for one in found.values())
    iperf = {(p.values["workload.ddp.model"], p.values["traffic.0.iperf.load"]) for p in found["quick-iperf"].points}
    assert len([load for model, load in iperf if model == "vgg16"]) >= 5, "as many as its form needs"
    assert models(found["quick-dilated"]) == {"resnet50"}


def test_bert_large_over_tcp_is_not_calibrated_to_its_time_over_rdma():
    full = sweeps("full")
    assert models(full["iperf"]) == MODELS
    assert models(full["websearch"]) == MODELS - {"bert-large"}
    for name in ("bert-websearch", "bert-heavy"):
        assert {p.resolved["workload"]["ddp"]["compute_time"] for p in full[name].points} == {"1.42s"}
    loads = {p.resolved["traffic"][0]["websearch"]["load"] for p in full["heavy"].points}
    assert loads == {"23gbit", "24gbit", "24.65gbit"}
    rechecked = {point.point: point.values["workload.ddp.model"] for point in full["iperf"].points}
    assert sorted(rechecked[one] for one in sweepplan.rechecked(full["iperf"])) == sorted(MODELS)


def test_on_four_hosts_iperf_ends_on_a_member_of_the_ring():
    (four,) = sweeps("four").values()
    for point in four.points:
        assert point.experiment.testbed.local.hosts == 4
        assert point.resolved["traffic"][0]["iperf"]["to"] in point.resolved["workload"]["ddp"]["hosts"]


def test_on_a_cluster_there_are_both_transports_horovod_and_heavy_loads(tmp_path):
    rack = (FILE.parents[2] / "testbeds/example-rack.yaml").read_text()
    rack = rack.replace("10gbit", "25gbit").replace("device: ens1f0", "device: ens1f0, rdma: mlx5_0")
    (tmp_path / "rack.yaml").write_text(rack)
    found = paperfile.load(FILE, [f"testbed={{inventory: {tmp_path / 'rack.yaml'}}}"], version="cluster")
    by_name = {one.file.name: one for one in found.sweeps}
    assert all(models(one, "horovod") == MODELS for one in by_name.values())
    transports = by_name["salamy-cluster-transports"].points
    assert {p.resolved["workload"]["horovod"]["transport"] for p in transports} == {"rdma", "tcp"}
    assert "24.65gbit" in {
        p.resolved["traffic"][0]["websearch"]["load"] for p in by_name["salamy-cluster-heavy"].points
    }


@pytest.mark.parametrize(
    ("title", "kinds"),
    [("Fig 3-2: beside iperf", {"ours", "fit", "printed"}), ("Fig 3-7: consistent and bursty", {"ours", "fit"})],
)
def test_figures_over_load_draw_points_fits_and_printed_marks(title, kinds):
    paper = reading.paper(FILE)
    (figure,) = (one for one in paper.file.figures if one.title.startswith(title))
    random = np.random.default_rng(1)
    first = [*salamy.kinds_of_traffic(random), *salamy.fitted(random, *salamy.ON_FITS["eq 3.3"])]
    rows = answering.changed(paper, first, figure.ask[1:])
    assert {row["kind"] for row in rows} == kinds
    for one in figure.draw:
        with look():
            drawn = drawing.drawn(paper, one, answering.changed(paper, rows, one.ask))
        (panel, *_) = drawn.axes
        assert panel.get_yscale() == "log"
        assert len(panel.get_lines()) >= 3
