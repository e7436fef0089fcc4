"""Loads where there is no capture: by the counters of the receiver's network device, as far as these can tell."""

from __future__ import annotations

import math

import numpy as np
import pytest

from orchestrator.analysis.traffic.throughput import CachedTable
from orchestrator.analysis.windows import loads
from orchestrator.parts.topology import Link, Node, Rail, Topology
from orchestrator.store.manifests.summaries import Job, Load, Rank
from orchestrator.validity.gates import load as load_gate
from tests.helpers import gate_windows, manifests
from tests.helpers.made_tables import table
from tests.helpers.sealed_run import loose, make_run

SECOND = 10**9
BEGIN = 1_795_000_000 * SECOND
FRAME = 1514


def topology() -> Topology:
    hosts = [Node(name=f"h{n}", rails=(Rail(address=f"10.0.0.{n}", device="eth0"),)) for n in (1, 2, 3)]
    links = tuple(Link(host=host.name, device="eth0", rate=1e9) for host in hosts)
    return Topology(kind="slurm", nodes=tuple(hosts), links=links)


def counters(rate_bps, *, seconds=20, per_packet=1, node="h3"):
    """Samples every 10 ms of a device that received frames at a rate over time, `per_packet` of them joined."""
    at = np.arange(0, seconds * 100)
    frames = np.cumsum([rate_bps(step / 100) / 8 / 100 / FRAME for step in at])
    packets = frames / per_packet
    joined = packets * (66 + per_packet * 1448) if per_packet > 1 else frames * FRAME
    rows = [
        {"node": node, "port": "eth0", "counter": name, "time_ns": BEGIN + int(step) * SECOND // 100, "value": value}
        for name, values in (("rx_bytes", joined), ("rx_packets", packets))
        for step, value in zip(at, values.tolist(), strict=True)
    ]
    return CachedTable(table("counters", rows))


def window(*loads):
    return manifests.window(start_ns=BEGIN + 2 * SECOND, end_ns=BEGIN + 18 * SECOND, loads=loads)


def asked(src="h1", source="iperf0", rate=100e6, period_s=0.0):
    return Load(source=source, src=src, dst="h3", requested_bps=rate, period_s=period_s, pause_s=period_s)


def judged(table_of, *wanted, jobs=(), sent=None):
    found = loads.counted_loads(table_of, topology(), window(), wanted, jobs=jobs, sent=sent or {})
    return found, gate_windows.judged(load_gate, loads=found, record=window())


def bursts(period_s, duty):
    """A rate that is 100 Mbit/s on average: all of it in the first part of each period, from the window's middle on."""
    return lambda at: 100e6 / duty if (at - 1.0) % period_s < duty * period_s else 0.0


@pytest.mark.parametrize("period_s", [3.0, 5.0])
def test_a_periodic_load_is_judged_over_whole_periods_and_may_pause_for_one(period_s):
    """The window of 16 s has 5.33 or 3.2 periods, of which it would see more or less than the mean."""
    traffic = counters(bursts(period_s, 0.2))
    (load,), (mean, gap) = judged(traffic, asked(period_s=period_s))
    assert load.achieved_bps == pytest.approx(100e6, rel=0.02)
    assert (mean.passed, gap.passed) == (True, True)
    assert gap.limit == 1 + period_s
    (_,), (mean, gap) = judged(traffic, asked())
    assert (mean.passed, gap.passed) == (False, False)


def test_a_periodic_load_that_is_too_small_or_stops_does_not_count():
    (_,), (mean, _) = judged(counters(lambda at: 0.9 * bursts(3.0, 0.2)(at)), asked(period_s=3.0))
    assert mean.passed is False
    (_,), (_, gap) = judged(counters(lambda at: bursts(3.0, 0.2)(at) if at < 8 else 0.0), asked(period_s=3.0))
    assert gap.passed is False


def test_a_window_without_a_whole_period_does_not_tell_the_load():
    (_,), (mean,) = judged(counters(bursts(20.0, 0.2)), asked(period_s=20.0))
    assert mean.passed is None
    assert mean.required
    assert "shorter than its period of 20 s" in mean.message


@pytest.mark.parametrize("per_packet", [1, 44])
@pytest.mark.parametrize(("rate", "passed"), [(100e6, True), (104e6, True), (90e6, False), (110e6, False)])
def test_a_load_is_what_the_counters_grew_by_as_frames(per_packet, rate, passed):
    (load,), (mean, gap) = judged(counters(lambda _: rate, per_packet=per_packet), asked())
    assert load.achieved_bps == pytest.approx(rate, rel=0.002)
    assert (mean.passed, gap.passed) == (passed, True)
    assert mean.message.startswith("iperf0 from h1 to h3, by the counters of its network device: ")


def test_a_pause_is_found_though_something_always_comes():
    def rate(at):
        return 0.5e6 if 8 <= at < 11 else 120e6

    (load,), (_, gap) = judged(counters(rate), asked())
    assert load.longest_gap_s == pytest.approx(3.0, abs=0.11)
    assert not gap.passed


def test_several_sources_at_one_host_are_judged_together():
    (load,), (mean, _) = judged(counters(lambda _: 150e6), asked(), asked("h2", "websearch1", 50e6))
    assert (load.requested_bps, mean.passed) == (150e6, True)
    assert mean.message.startswith("iperf0 and websearch1 from h1 and h2 to h3, by")


def test_senders_of_one_source_are_told_apart_by_their_own_logs():
    both = asked("h1", "websearch0", 60e6), asked("h2", "websearch0", 60e6)
    sent = {("websearch0", "10.0.0.3"): {"10.0.0.1": 9e6, "10.0.0.2": 3e6}}
    found, gates = judged(counters(lambda _: 120e6), *both, sent=sent)
    assert [load.achieved_bps for load in found] == pytest.approx([90e6, 30e6], rel=0.002)
    assert [gate.passed for gate in gates if gate.name == "load"] == [False, False]


def test_a_sender_that_is_silent_fails_beside_one_that_sends_for_both():
    both = asked("h1", "websearch0", 60e6), asked("h2", "websearch0", 60e6)
    _, gates = judged(counters(lambda _: 120e6), *both, sent={("websearch0", "10.0.0.3"): {"10.0.0.1": 9e6}})
    assert [round(gate.measured, 2) for gate in gates if gate.name == "load"] == [1.0, -1.0]
    assert not any(gate.passed for gate in gates if gate.name == "load")


def test_where_ranks_receive_too_the_load_is_not_known():
    job = Job(name="training", workload="ddp", ranks=(Rank(rank=0, node="h3", logs=True),))
    (load,), (gate,) = judged(counters(lambda _: 100e6), asked(), jobs=[job])
    assert math.isnan(load.achieved_bps)
    assert (gate.passed, gate.required) == (None, True)
    assert "ranks on h3 receive too" in gate.message


@pytest.mark.parametrize("samples", [{"seconds": 10}, {"node": "h2"}])
def test_samples_that_do_not_cover_the_window_tell_nothing(samples):
    (load,), (gate,) = judged(counters(lambda _: 100e6, **samples), asked())
    assert math.isnan(load.achieved_bps)
    assert "add `nic` to `collect` for h3" in gate.message


def test_joined_frames_count_as_they_were_on_the_wire():
    assert topology().on_wire(1000 * FRAME, 1000) == pytest.approx(1000 * FRAME)
    assert topology().on_wire(66 + 44 * 1448, 1) == pytest.approx(44 * FRAME)
    assert topology().on_wire(66 * 1000, 1000) == 66_000


def test_a_run_without_captures_still_knows_its_loads(tmp_path):
    """Its receiver trains, so that counters cannot tell; one that does not is judged (the runs on Slurm do it)."""
    run = make_run(tmp_path, tolerances={**loose(), "load": 0.05}, skip=("packets", "sockets"))
    import json

    (found,) = json.loads((run / "manifest.json").read_text())["windows"]
    (gate,) = [gate for gate in found["gates"] if gate["name"] == "load"]
    assert (gate["passed"], found["valid"]) == (None, False)
    assert "ranks on h1 receive too" in gate["message"]
