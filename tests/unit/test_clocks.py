from __future__ import annotations

import re
import time

from orchestrator.analysis.windows.gates import Evidence, Tolerances, judge
from orchestrator.core.deadline import Deadline
from orchestrator.core.machine import own_kernel
from orchestrator.parts.topology import Node
from orchestrator.remote.agent_client import AgentClient
from orchestrator.remote.answers import ClockSample
from orchestrator.remote.clocks import agreed
from orchestrator.remote.transport import local

SAMPLES = {"h1": ClockSample(120_000, 90_000), "h2": ClockSample(600_000, 1_060_000), "h3": ClockSample(-5_000, 40_000)}


def test_hosts_on_the_controllers_own_kernel_have_its_clock_however_slowly_they_answered():
    found = agreed(SAMPLES, {"h1": "here", "h2": "here", "h3": "there"}, "here")
    assert found == {"h1": ClockSample(0, 0), "h2": ClockSample(0, 0), "h3": SAMPLES["h3"]}


def test_hosts_that_share_another_kernel_share_the_offset_that_is_known_best():
    found = agreed(SAMPLES, {"h1": "there", "h2": "there", "h3": "elsewhere"}, "here")
    assert found == {"h1": SAMPLES["h1"], "h2": SAMPLES["h1"], "h3": SAMPLES["h3"]}
    turned = agreed(dict(reversed(SAMPLES.items())), {"h1": "there", "h2": "there", "h3": "elsewhere"}, "here")
    assert turned == found


def test_hosts_of_different_kernels_keep_what_was_measured_of_each():
    assert agreed(SAMPLES, {"h1": "a", "h2": "b", "h3": "c"}, "here") == SAMPLES


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
    evidence = Evidence(window="w1", clock_uncertainty_s=(("far", sample.uncertainty_ns / 1e9),))
    (gate,) = judge(evidence, Tolerances())
    assert (gate.passed, gate.required) == (False, True)
    (limit,) = re.findall(r"Run orch nearer to it, or allow it with `validity: {clock: (\d+)ms}`", gate.message)
    assert judge(evidence, Tolerances(clock_s=int(limit) / 1e3))[0].passed
