"""What links need beside the slowest one, from made traffic whose rates are known."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from orchestrator.analysis.traffic import traffic
from orchestrator.questions import slack as asked
from tests.helpers.made_traffic import BEGAN_NS, BYTES_A_MS, ITERATION_MS, MS, SENDS_MS, made

STEPS, SCALE, LINK_BPS = 20, 100, 50e9
CROSS = 40_000  # bytes a ms from h1: with the training's 20,000 they fill a link of 62,500
NEEDED_GBPS = BYTES_A_MS * 1514 / 1448 * 8 * 1e3 * SCALE / 1e9  # all links send in the same 40 ms


def ask(found=None):
    whole = made(iterations=STEPS, cross=CROSS) if found is None else found
    whole.name[:] = np.where(whole.name == "train", "training", whole.name)
    part = traffic.within(whole, BEGAN_NS, BEGAN_NS + STEPS * ITERATION_MS * MS)
    window = SimpleNamespace(iterations=lambda _: SimpleNamespace(seconds=np.array([0.1])))
    run = SimpleNamespace(id="r1", scale=SCALE)
    one = SimpleNamespace(window=window, run=run, traffic=part, whole=whole, steps=STEPS)
    links = [SimpleNamespace(host=f"h{number}") for number in (1, 2, 3, 4, 5)]
    topology = SimpleNamespace(links=links, carries_bps=lambda _: LINK_BPS)
    point = SimpleNamespace(job=SimpleNamespace(name="training"), manifest=SimpleNamespace(topology=topology))
    return dict(asked._directions(point, one))


def test_the_shared_link_is_the_slowest_and_the_others_need_what_they_carry_in_its_time():
    found = ask()
    assert [key for key, values in found.items() if values["slowest"]] == [("h1", "out")]
    assert found["h1", "out"]["share"] == pytest.approx(1.0, abs=0.05)
    for key in (("h2", "out"), ("h3", "out"), ("h4", "in")):
        assert found[key]["needed_gbps"] == pytest.approx(NEEDED_GBPS, rel=0.06)
        assert found[key]["slack_pct"] == pytest.approx(100 * (1 - NEEDED_GBPS * 1e9 / LINK_BPS), abs=2)
        assert found[key]["busy_s"] == pytest.approx(SENDS_MS / 1e3, rel=0.06)


def thinned(whole):
    """Return traffic that sends the same bytes in every second millisecond, as packets that take turns on a link do."""
    mine = (whole.kind[whole.bin_flow] == "training") & (whole.bin_payload > 0)
    even = (whole.bin_ns - BEGAN_NS) // MS % 2 == 0
    for name in ("bin_wire", "bin_payload"):
        values = getattr(whole, name)
        values[mine & even] *= 2
        values[mine & ~even] = 0
    return whole


def test_milliseconds_in_which_another_flow_had_its_turn_are_no_silence():
    found = ask(thinned(made(iterations=STEPS, cross=CROSS)))
    assert found["h2", "out"]["needed_gbps"] == pytest.approx(NEEDED_GBPS, rel=0.1)


def test_a_link_that_sends_in_half_the_time_needs_as_much_as_one_that_takes_all_of_it():
    whole = made(iterations=STEPS, cross=CROSS)
    place = (whole.bin_ns - BEGAN_NS) // MS % ITERATION_MS
    quick = (whole.src == whole.hosts.index("h2"))[whole.bin_flow] & (whole.bin_payload > 0)
    late = place >= ITERATION_MS - SENDS_MS // 2
    for name in ("bin_wire", "bin_payload"):
        values = getattr(whole, name)
        values[quick & late] *= 2
        values[quick & ~late] = 0
    found = ask(whole)
    assert found["h2", "out"]["busy_s"] == pytest.approx(SENDS_MS / 2e3, rel=0.1)
    assert found["h2", "out"]["needed_gbps"] == pytest.approx(NEEDED_GBPS, rel=0.1)
