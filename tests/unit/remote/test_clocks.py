from __future__ import annotations

import re
import time

from orchestrator.core.deadline import Deadline
from orchestrator.core.machines.machine import own_kernel
from orchestrator.parts.topology import Node
from orchestrator.remote.agent_client import AgentClient
from orchestrator.remote.clocks import ClockSample, agreed, asked, better, said
from orchestrator.remote.transport import local
from orchestrator.validity.gates import clock
from tests.helpers import manifests
from tests.helpers.gate_windows import judged

SAMPLES = {"there": ClockSample(120_000, 90_000), "elsewhere": ClockSample(-5_000, 40_000)}


def test_hosts_of_one_kernel_share_a_clock_and_the_controllers_own_is_not_asked():
    kernels = {"h1": "here", "h4": "there", "h2": "there", "h3": "elsewhere", "h5": "gone"}
    assert asked(kernels, "here") == {"there": "h2", "elsewhere": "h3", "gone": "h5"}
    there = SAMPLES["there"]
    assert agreed(SAMPLES, kernels, "here") == {
        "h1": ClockSample(0, 0),
        "h4": there,
        "h2": there,
        "h3": SAMPLES["elsewhere"],
    }


def test_the_shortest_round_trip_counts():
    first, best = ClockSample(1, 30), ClockSample(2, 20)
    assert better(better(better(None, first), best), ClockSample(3, 20)) == best


def test_an_agent_of_this_machine_tells_the_kernel_that_the_controller_runs_on(tmp_path):
    client = AgentClient(
        Node(name="here", work=str(tmp_path)), local.connect(), run="clocks", holder={}, on_event=lambda _: None
    )
    try:
        assert client.hello(Deadline.after(60)).boot == own_kernel()
    finally:
        client.close(Deadline.after(60))


class Far(local.LocalChannel):
    """A channel with a delay each way, as of a control network across a continent."""

    DELAY_S = 0.05

    def read(self, size):
        data = super().read(size)
        time.sleep(self.DELAY_S)
        return data

    def write(self, data):
        time.sleep(self.DELAY_S)
        super().write(data)


def test_a_far_clock_is_known_to_half_the_round_trip_and_no_window_is_valid_by_it(tmp_path):
    client = AgentClient(Node(name="far", work=str(tmp_path)), Far(), run="clocks", holder={}, on_event=lambda _: None)
    try:
        client.hello(Deadline.after(60))
        sample = client.clock(4, Deadline.after(60))
    finally:
        client.close(Deadline.after(60))
    assert sample.uncertainty_ns >= Far.DELAY_S * 0.9e9
    assert abs(sample.offset_ns) <= sample.uncertainty_ns
    (gate,) = judged(clock, manifest=of_clocks(far=(sample.uncertainty_ns, 0)))
    assert (gate.passed, gate.required) == (False, True)
    (limit,) = re.findall(r"Run orch nearer to it, or allow it with `validity: {clock: (\d+)ms}`", gate.message)
    moved = of_clocks({"clock": int(limit) / 1e3}, far=(sample.uncertainty_ns, 0))
    assert judged(clock, manifest=moved)[0].passed


def of_clocks(validity=None, kernels=None, **nodes):
    """A manifest with the clock of each node by its uncertainty and by how much it moved, in nanoseconds."""
    clocks = {
        node: {
            "before": {"offset_ns": 0, "uncertainty_ns": uncertainty_ns},
            "after": {"offset_ns": moved_ns, "uncertainty_ns": uncertainty_ns},
        }
        for node, (uncertainty_ns, moved_ns) in nodes.items()
    }
    return manifests.made(clocks=clocks, validity=validity or {}, kernels={"nodes": kernels or {}})


def order(low_us, *, uncertainty_us=0.0, early=0, kernels=("a", "b")):
    nodes = {node: (int(uncertainty_us * 1000), 0) for node in ("h1", "h2")}
    manifest = of_clocks(kernels=dict(zip(nodes, kernels, strict=True)), **nodes)
    pairs = [
        {"src": "h2", "dst": "h1", "packets": 5000, "early": 0, "low_s": 80e-6, "p50_s": 1e-4},
        {"src": "h1", "dst": "h2", "packets": 5000, "early": early, "low_s": low_us * 1e-6, "p50_s": 1e-4},
    ]
    (gate,) = [gate for gate in judged(clock, manifest=manifest, rows={"one_way": pairs}) if gate.name == "clock-order"]
    return gate


def test_packets_arrive_after_they_were_sent_as_far_as_clocks_are_known():
    assert (order(40, early=2).passed, order(40, early=2).required) == (True, True)
    within = order(-150, early=4000, uncertainty_us=100)
    assert (within.passed, within.required) == (False, False)
    assert "h1 to h2: 4,000 of 5,000 packets" in within.message
    beyond = order(-250, early=4000, uncertainty_us=100)
    assert (beyond.passed, beyond.required) == (False, True)
    assert "by 50 us more than their clocks are said to be off" in beyond.message
    one_clock = order(-1, early=10, uncertainty_us=100, kernels=("a", "a"))
    assert (one_clock.passed, one_clock.required) == (False, True)
    assert judged(clock) == []


def test_a_drift_is_told():
    (gate,) = judged(clock, manifest=of_clocks(h1=(100_000, 300_000)))
    assert gate.message == "h1: its clock is known to 400 us; it drifted by +300 us during the run"


CHRONY = "C0000201,ntp.example.net,3,1763805122.123456789,-0.000012500,0.000004100,0.000020300,-18.512,0.003,0.041,"
CHRONY += "0.000410000,0.000095000,64.4,Normal"
PMC = """sending: GET CURRENT_DATA_SET
\t90e2ba.fffe.20c7f8-0 seq 0 RESPONSE MANAGEMENT CURRENT_DATA_SET
\t\tstepsRemoved        1
\t\toffsetFromMaster  -142.0
\t\tmeanPathDelay     9310.0"""


def test_what_chrony_and_ptp_say_of_a_clock_stands_beside_it():
    assert said({"clock": CHRONY, "ptp": PMC}) == {"chrony_ns": 12_500 + 205_000 + 95_000, "ptp_ns": 142}
    assert said({"clock": CHRONY.replace("Normal", "Not synchronised"), "ptp": None}) == {}
    assert said({"clock": "506 Cannot talk to daemon", "ptp": "sending: GET CURRENT_DATA_SET"}) == {}
    assert said({}) == {}
    assert said({"clock": CHRONY.replace("-0.000012500", "?")}) == {}
