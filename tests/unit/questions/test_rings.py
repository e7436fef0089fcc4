"""Rings are recovered from bytes between hosts alone, and held against the launch order."""

from __future__ import annotations

import math

import pytest

from orchestrator.analysis.traffic.pattern import AGAINST_ORDER, IN_ORDER
from orchestrator.questions.rings import rings


def edges(launched, sends, *, ranks=None, back=0.0):
    """Each host of `sends` sends 1 MB to the next one, and a share of it comes back."""
    place = {host: number for number, host in enumerate(dict.fromkeys(launched), 1)}
    following = dict(zip(sends, [*sends[1:], sends[0]], strict=True))
    return [
        {
            "model": "m",
            "ranks": ranks or len(launched),
            "repetition": 1,
            "src": src,
            "dst": dst,
            "src_worker": place[src],
            "dst_worker": place[dst],
            "payload_bytes": 1e6 * (following[src] == dst) + 1e6 * back * (following[dst] == src),
            "theory_bytes": math.nan,
        }
        for src in place
        for dst in place
        if src != dst
    ]


@pytest.mark.parametrize(
    ("launched", "direction", "around"),
    [
        (["h1", "h4", "h3", "h2"], IN_ORDER, "h1 → h4 → h3 → h2"),
        (["h3", "h2", "h1", "h4"], IN_ORDER, "h3 → h2 → h1 → h4"),
        (["h2", "h3", "h4", "h1"], AGAINST_ORDER, "h2 → h1 → h4 → h3"),
        (["h1", "h3", "h4", "h2"], "not in launch order", "h1 → h4 → h3 → h2"),
    ],
)
def test_a_ring_is_recovered_and_turns_with_or_against_the_launch_order(launched, direction, around):
    (found,) = rings(edges(launched, ["h1", "h4", "h3", "h2"], back=0.01))
    assert (found["shape"], found["direction"], found["around"]) == ("ring", direction, around)
    assert found["in_order"] == (direction in (IN_ORDER, AGAINST_ORDER))
    assert found["back"] == pytest.approx(0.01)
    assert (found["model"], found["repetition"]) == ("m", 1)


def test_ranks_that_share_a_host_are_in_no_order():
    (found,) = rings(edges(["h1", "h2", "h3", "h4"], ["h1", "h2", "h3", "h4"], ranks=8))
    assert (found["shape"], found["in_order"]) == ("ring", False)


def test_what_is_no_ring_is_in_no_order_and_each_point_and_run_has_a_row():
    mesh = [
        {**row, "payload_bytes": 1e6, "model": "mesh"}
        for row in edges(["h1", "h2", "h3", "h4"], ["h1", "h2", "h3", "h4"])
    ]
    nothing = [{**row, "payload_bytes": math.nan, "model": "none"} for row in mesh]
    found = {row["model"]: row for row in rings(mesh + nothing)}
    assert (found["mesh"]["shape"], found["mesh"]["in_order"], found["mesh"]["around"]) == ("full mesh", False, "")
    assert (found["none"]["shape"], found["none"]["in_order"]) == ("none", False)
    assert rings([]) == []
