"""Every plan watches the processors of the nodes that take part, and says what a window may lose to other work."""

from __future__ import annotations

import pytest

from orchestrator.analysis.windows import processors
from orchestrator.experiment import documents, plan, validation
from orchestrator.experiment.experiment import model
from orchestrator.validity.gates.processor import MOST_KEPT
from tests.helpers import manifests

EXPERIMENT = """
name: x
testbed: {local: {hosts: 5, link: 1gbit}}
workload: {ddp: {model: resnet50, compute_time: 10ms, hosts: [h1, h2]}}
measure: {iterations: 5}
"""
MANIFEST = {"load": 0.05, "capture_drops": 0.1, "capture_nic": 0.1, "min_iterations": 5, "clock": 0.001}
WINDOW = {**manifests.NOT_JUDGED, "name": "w1", "wanted_iterations": 5}


def built(more=""):
    document = documents.parse((EXPERIMENT + more).encode(), name="e", needs="all")
    return plan.build(validation.validate(document, model()))[0]


def watched(run):
    return [launch.node for launch in run.collectors if launch.part == processors.PART]


@pytest.mark.parametrize(
    ("more", "nodes"),
    [
        ("", ["h1", "h2"]),
        ("collect: [cpu: {hosts: [h4]}]\n", ["h1", "h2", "h4"]),
        ("traffic: [iperf: {from: h1, to: h5, load: 100mbit}]\n", ["h1", "h2", "h5"]),
        ("collect: [qdisc: {hosts: [switch]}]\n", ["h1", "h2", "switch"]),
        ("collect: [processor: {hosts: [h1]}]\n", ["h1"]),  # as the experiment says
    ],
)
def test_the_nodes_that_take_part_are_watched_and_no_others(more, nodes):
    run = built(more)
    assert watched(run) == nodes
    assert set(nodes) <= set(run.nodes())
    assert "h3" not in run.nodes()


@pytest.mark.parametrize(
    ("more", "limit"), [("", 0.05), ("validity: {processor: 12%}\n", 0.12), ("validity: {processor: ignore}\n", None)]
)
def test_the_limit_of_the_gate_is_what_the_experiment_says(more, limit):
    assert MOST_KEPT.number(built(more).validity) == limit


def test_a_run_from_before_the_gate_is_judged_by_its_default():
    assert MOST_KEPT.number(manifests.made(validity=MANIFEST, windows=[WINDOW]).validity) == 0.05
