"""How jobs share a link: Jain's index, and bytes by job."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from orchestrator.questions import sharing
from tests.helpers import manifests

MS = 10**6


@pytest.mark.parametrize(
    ("values", "index"), [([1, 1, 1, 1], 1), ([5, 0, 0, 0], 0.25), ([2, 1], 0.9), ([3, 3, 0], 2 / 3)]
)
def test_fairness_is_one_over_the_number_where_one_has_all(values, index):
    assert sharing.jain(values) == pytest.approx(index)
    assert sharing.jain([1000 * value for value in values]) == pytest.approx(index)


def test_nothing_shared_is_neither_fair_nor_unfair():
    assert math.isnan(sharing.jain([0, 0]))


def window(monkeypatch, **rows):
    """A window of two jobs of two hosts each, from 10 to 20 ms, with these tables."""
    jobs = [
        {"name": name, "workload": "collective", "ranks": [{"rank": at, "node": host} for at, host in enumerate(hosts)]}
        for name, hosts in (("a", ("h1", "h3")), ("b", ("h2", "h4")))
    ]
    nodes = [{"name": f"h{i}", "rails": [{"address": f"10.0.0.{i}", "device": "eth0"}]} for i in range(1, 5)]
    topology = {"kind": "local", "nodes": nodes, "links": []}
    found = SimpleNamespace(
        manifest=manifests.made(jobs=jobs, topology=topology),
        record=SimpleNamespace(name="w1", span_ns=(10 * MS, 20 * MS)),
        iterations=lambda job: SimpleNamespace(seconds=np.array([1.0, 1.0] if job == "a" else [3.0, 3.0])),
    )
    monkeypatch.setattr(sharing, "_table", lambda _, name: rows.get(name, []))
    return found


def carried(node, used, **more):
    usual = {"link": "leaf1-spine1", "window_name": "w1", "waiting_s": 1e-3, "drops": 4.0, "port": f"p-{node}"}
    return {**usual, "node": node, "used": used, **more}


def crossed(src, size, begin_ms=12, **more):
    usual = {"node": "leaf1", "spine": "spine1", "begin_ns": begin_ms * MS, "end_ns": (begin_ms + 1) * MS}
    return {**usual, "src": src, "bytes": size, **more}


def test_the_direction_that_waited_longer_is_told_and_bytes_of_the_window_by_job(monkeypatch):
    links = [
        carried("leaf1", 0.9, port="p-spine1", waiting_s=2e-3),
        carried("spine1", 0.95),
        carried("leaf1", 1.0, window_name="w2"),
        carried("leaf1", 1.0, link="leaf2-spine1"),
    ]
    paths = [
        *(crossed("10.0.0.1", 100), crossed("10.0.0.1", 100), crossed("10.0.0.2", 100)),
        *(crossed("10.0.0.2", 900, begin_ms=5), crossed("10.0.0.2", 900, begin_ms=20)),  # before it, and after
        *(crossed("10.0.0.4", 900, node="leaf2"), crossed("10.0.0.9", 900)),  # another link, another's host
    ]
    marks = [
        {"node": "leaf1", "device": "p-spine1", "capable": 200, "marked": 10},
        {"node": "spine1", "device": "p-leaf1", "capable": 200, "marked": 200},
    ]
    made = window(monkeypatch, fabric_links=links, paths=paths, marks=marks)
    assert sharing._shared(made, "leaf1-spine1") == {
        "seconds": 2.0,
        "unused_pct": pytest.approx(10.0),
        "fairness": pytest.approx(0.9),
        "waiting_ms": 2.0,
        "drops": 4.0,
        "marked_pct": 5.0,
    }


def test_a_link_that_nobody_counted_gives_no_row(monkeypatch):
    assert sharing._shared(window(monkeypatch), "leaf1-spine1") is None
