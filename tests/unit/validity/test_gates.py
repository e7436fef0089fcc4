from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from orchestrator.store.manifests.coding import encoded
from orchestrator.validity.registry import judge, reasons, valid
from orchestrator.validity.window import ArrivedLoad, Capture, JobIterations, PortBytes
from tests.helpers import gate_windows, manifests

FIGURES = {
    "loads": ArrivedLoad(
        source="iperf0", src="h2", dst="h1", requested_bps=100e6, achieved_bps=101e6, longest_gap_s=0.1
    ),
    "captures": Capture(node="h1", port="eth0", captured=1000, received=1000, dropped=0),
    "port_bytes": PortBytes(node="h1", port="eth0", direction="in", captured=50e6, counted=50.1e6),
    "jobs": JobIterations(name="training", iterations=50, incomplete=0, ranks=4, ranks_seen=4),
}


def good(*, swapped=0.0, throttled=0.0, uncertain_ns=100_000, free=10**9, launch=None, manifest=None, **more):
    """A window of one host that passes every gate, unless told otherwise."""
    about = {
        "launches": [manifests.launch(**(launch or {}))],
        "clocks": {"h1": {"before": {"offset_ns": 0, "uncertainty_ns": uncertain_ns}}} if uncertain_ns else {"h1": {}},
        "free_disk_bytes": {"h1": free},
        **(manifest or {}),
    }
    grown = {("h1", "", "swap.in_pages"): swapped, ("h1", "", "cpu.core_throttles"): throttled}
    figures = {name: (figure,) for name, figure in FIGURES.items()}
    return gate_windows.window(manifest=manifests.made(**about), grown=grown, **{**figures, **more})


def changed(part, manifest=None, **values):
    return good(manifest=manifest, **{part: (replace(FIGURES[part], **values),)})


def test_a_good_window_passes_every_gate():
    gates = judge(good())
    assert valid(gates)
    assert reasons(gates) == []
    assert {gate.name for gate in gates} == {
        "iterations",
        "overlap",
        "load",
        "gap",
        "capture-drops",
        "capture-nic",
        "clock",
        "swap",
        "throttle",
        "disk",
    }
    assert all(gate.passed for gate in gates)


@pytest.mark.parametrize(
    ("evidence", "gate", "told"),
    [
        (changed("loads", achieved_bps=90e6), "load", "90mbit of 100mbit arrived (-10.0%), off by more than 0.05"),
        (changed("loads", achieved_bps=110e6), "load", "+10.0%"),
        (changed("loads", longest_gap_s=2.5), "gap", "longest pause 2.5 s, above 1 s"),
        (changed("captures", dropped=10, received=1010), "capture-drops", "dropped 10 of 1010 packets"),
        (changed("port_bytes", captured=45e6), "capture-nic", "captured 45 MB, the interface counted 50.1 MB (-10.2%)"),
        (changed("port_bytes", counted=0.0), "capture-nic", "+inf%"),
        (changed("jobs", iterations=19), "iterations", "19 iterations, fewer than the 20 needed"),
        (changed("jobs", ranks_seen=3), "overlap", "only 3 of 4 ranks"),
        (changed("jobs", incomplete=2), "overlap", "2 iterations were not logged by all 4 ranks"),
        (good(uncertain_ns=2_000_000), "clock", "known to 2 ms, not to 1 ms"),
        (good(swapped=12.0), "swap", "swapped 12 pages"),
        (good(throttled=3.0), "throttle", "throttled 3 times"),
        (good(free=10**6), "disk", "1 MB of disk were free, less than 256 MB"),
    ],
)
def test_each_gate_fails_alone_and_says_why(evidence, gate, told):
    gates = judge(evidence)
    assert not valid(gates)
    assert [g.name for g in gates if g.passed is False] == [gate]
    assert gates[0].name == gate
    assert told in reasons(gates)[0]


def offloaded(*, tells_frames, share=1.0, counts=lambda number, size: (number, size)):
    """A capture of `share` of 1000 packets of 44 segments each, behind an interface that counts them, or frames."""
    whole, frames = 1000 * (66 + 44 * 1448), 1000 * 44 * 1514
    counted = counts(44_000, frames) if tells_frames else counts(1000, whole)
    return changed(
        "port_bytes",
        captured=share * whole,
        packets=share * 1000,
        wire=share * frames,
        frames=share * 44_000,
        counted_packets=counted[0],
        counted=counted[1],
    )


@pytest.mark.parametrize("tells_frames", [True, False])
def test_what_offloads_join_is_held_against_what_the_interface_counts(tells_frames):
    assert valid(judge(offloaded(tells_frames=tells_frames)))
    (reason,) = reasons(judge(offloaded(tells_frames=tells_frames, share=0.97)))
    assert "MB as frames), the interface counted" in reason
    assert reason.endswith("%); the condition `offloads: off` has captures and counters see frames alike")


def test_an_interface_may_count_single_packets_and_joined_ones():
    """Half of the 1000 packets of 44 segments reached it joined."""
    half = offloaded(tells_frames=False, counts=lambda number, size: (500 + 22_000, size // 2 + 500 * 44 * 1514))
    assert valid(judge(half))


def test_an_interface_may_count_frames_and_bytes_as_it_is_handed_them():
    assert valid(judge(offloaded(tells_frames=False, counts=lambda _, size: (44_000, size))))


def test_an_interface_may_count_checksums():
    """Acknowledgements of 66 bytes: that is where four bytes a frame tell."""
    acks = {"captured": 6.6e6, "wire": 6.6e6, "packets": 1e5, "frames": 1e5, "counted_packets": 1e5}
    assert valid(judge(changed("port_bytes", counted=7e6, **acks)))
    assert not valid(judge(changed("port_bytes", counted=7.4e6, **acks)))


@pytest.mark.parametrize(
    ("evidence", "gate", "needed"),
    [
        (changed("loads", achieved_bps=math.nan), "load", True),
        (good(uncertain_ns=None), "clock", True),
        (changed("port_bytes", counted=math.nan), "capture-nic", False),
        (good(swapped=math.nan), "swap", False),
    ],
)
def test_what_a_number_rests_on_is_not_taken_on_trust(evidence, gate, needed):
    gates = judge(evidence)
    (open_one,) = [g for g in gates if g.passed is None]
    assert open_one.name == gate
    assert valid(gates) is not needed
    assert json.loads(encoded(open_one))["measured"] is None


def test_a_load_taken_as_achieved_is_told_but_does_not_fail():
    gates = judge(changed("loads", {"validity": {"load": "as-achieved"}}, achieved_bps=50e6))
    (load,) = [gate for gate in gates if gate.name == "load"]
    assert (load.passed, load.required) == (True, False)
    assert "-50.0%" in load.message
    assert "as achieved" in load.message


@pytest.mark.parametrize("needed", [True, False])
def test_a_capture_that_is_not_whole_counts_where_something_rests_on_it(needed):
    silent = {"captured": None, "received": None, "dropped": None}
    gates = judge(changed("captures", gap="ended early (killed)", needed=needed, **silent))
    assert valid(gates) is not needed
    assert gates[0].message == "capture at h1:eth0 ended early (killed): no figure is taken from it"
    (drops,) = [gate for gate in gates if gate.name == "capture-drops"]
    assert (drops.passed, drops.required) == (None, False)


@pytest.mark.parametrize(
    ("sent", "edges", "passed"), [(101e3, 0.0, True), (97e3, 0.0, False), (97e3, 0.02, True), (67e3, 0.02, False)]
)
def test_bytes_off_theory_are_told_but_do_not_fail(sent, edges, passed):
    gates = judge(changed("jobs", sent_bytes=sent, theory_bytes=100e3, edges=edges))
    (theory,) = [gate for gate in gates if gate.name == "theory"]
    assert (theory.passed, theory.required) == (passed, False)
    assert f"{sent / 1e5 - 1:+.1%} of theory" in theory.message
    assert valid(gates)


def test_a_quiet_port_is_not_compared():
    gates = judge(changed("port_bytes", captured=100.0, counted=900.0))
    assert "capture-nic" not in {gate.name for gate in gates}


@pytest.mark.parametrize("required", [True, False])
def test_a_failed_collector_counts_when_it_was_required(required):
    gates = judge(good(launch={"name": "tcpdump", "role": "collector", "failed": "exit 1", "required": required}))
    assert valid(gates) is not required
    assert gates[0].message == "tcpdump on h1 failed: exit 1"


def test_a_damaged_capture_makes_a_window_invalid():
    assert not valid(judge(good(unreadable_captures=("x.pcap is damaged",))))


def test_no_iterations_at_all():
    gates = judge(changed("jobs", iterations=0, ranks_seen=0))
    assert {gate.name for gate in gates if gate.passed is False} == {"iterations", "overlap"}


def test_loads_are_told_at_the_size_at_which_they_were_asked_for():
    gates = judge(changed("loads", {"scale": 100}, achieved_bps=90e6))
    assert (
        next(gate.message for gate in gates if gate.name == "load").partition(": ")[2].startswith("9gbit of 10gbit arr")
    )
