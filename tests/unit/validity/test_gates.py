from __future__ import annotations

import json
import math
import re
from dataclasses import replace

import pytest

from orchestrator.store.manifests.coding import encoded
from orchestrator.validity.registry import judge, reasons, valid
from orchestrator.validity.window import ArrivedLoad, Capture, GeneratedFlows, JobIterations, PortBytes
from tests.helpers import gate_windows, manifests

FIGURES = {
    "loads": ArrivedLoad(
        source="iperf0", src="h2", dst="h1", requested_bps=100e6, achieved_bps=101e6, longest_gap_s=0.1
    ),
    "captures": Capture(node="h1", port="eth0", captured=1000, received=1000, dropped=0),
    "port_bytes": PortBytes(node="h1", port="eth0", direction="in", captured=50e6, counted=50.1e6),
    "jobs": JobIterations(name="training", iterations=50, incomplete=0, ranks=4, ranks_seen=4),
}
FLOWS = GeneratedFlows(
    source="iperf0",
    flows=100,
    shed=0,
    starved=0,
    unfinished=0,
    failed=0,
    late_p50_s=0.0,
    late_p99_s=0.0,
    late_max_s=0.0,
    planned_bps=100e6,
    acknowledged_bps=100e6,
    received_payload_bps=95e6,
    size_distance=0.0,
    size_limit=0.1,
    gap_distance=0.0,
)


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


@pytest.mark.parametrize(
    ("achieved", "planned", "told"),
    [(110e6, 109e6, True), (110e6, 101e6, False), (101e6, 109e6, False), (110e6, math.nan, False)],
)
def test_a_load_that_its_schedule_does_not_have_says_so(achieved, planned, told):
    """Another attempt sends the same flows; where a load is off without that it may help."""
    load = replace(FIGURES["loads"], achieved_bps=achieved)
    gates = judge(good(loads=(load,), generated=(replace(FLOWS, planned_bps=planned),)))
    (gate,) = [gate for gate in gates if gate.name == "load"]
    assert ("has 109mbit in this window, in each attempt: measure a longer window" in gate.message) is told


SEGMENTS, WHOLE, FRAME = 44, 66 + 44 * 1448, 1514
INVENTORY = {"topology": {"kind": "inventory", "nodes": [], "links": []}}
COUNTS = {  # packets and bytes that devices count of packets of 44 segments, and acknowledgements beside them
    "handed": lambda packets, acks: (packets + acks, packets * WHOLE + 66 * acks),
    "frames": lambda packets, acks: (packets * SEGMENTS + acks, packets * SEGMENTS * FRAME + 66 * acks),
    "checksums": lambda packets, acks: (packets * SEGMENTS + acks, packets * SEGMENTS * (FRAME + 4) + 70 * acks),
    "no headers": lambda packets, acks: (packets * SEGMENTS + acks, packets * SEGMENTS * (FRAME - 14) + 52 * acks),
    "preambles": lambda packets, acks: (packets * SEGMENTS + acks, packets * SEGMENTS * (FRAME + 24) + 90 * acks),
    "netvsc": lambda packets, acks: (packets * SEGMENTS + acks, packets * WHOLE + 66 * acks),
}


def port(counts, *, packets=10_000, acks=0, share=1.0, acks_share=1.0, earlier=None):
    """A direction of a port of which a share of the packets and of the acknowledgements was captured."""
    counted = counts(packets, acks)
    packets, acks = packets * share, acks * acks_share
    return PortBytes(
        node="h1",
        port="eth0",
        direction="in",
        captured=packets * WHOLE + 66 * acks,
        packets=packets + acks,
        wire=packets * SEGMENTS * FRAME + 66 * acks,
        frames=packets * SEGMENTS + acks,
        counted_packets=counted[0],
        counted=counted[1],
        earlier=earlier,
    )


def held(one, manifest=INVENTORY):
    (gate,) = [gate for gate in judge(good(manifest=manifest, port_bytes=(one,))) if gate.name == "capture-nic"]
    return gate


@pytest.mark.parametrize("device", COUNTS)
@pytest.mark.parametrize("acks", [0, 200_000])
def test_a_window_is_judged_by_the_reading_that_its_device_had_before(device, acks):
    counts = COUNTS[device]
    read = port(counts, packets=2000, acks=acks // 20)
    assert held(port(counts, acks=acks, earlier=read)).passed
    lacking = held(port(counts, share=0.97, acks=acks, acks_share=0.97, earlier=read))
    assert (lacking.passed, lacking.measured) == (False, pytest.approx(-0.03, abs=0.005))
    assert "MB as frames), the interface counted" in lacking.message
    assert lacking.message.endswith("; the condition `offloads: off` has captures and counters see frames alike")
    if acks:
        gone = held(port(counts, acks=acks, acks_share=0.0, earlier=read))
        assert gone.passed is False
        assert "of its packets" in gone.message


@pytest.mark.parametrize("device", COUNTS)
def test_a_part_of_the_acknowledgements_is_missed_where_bytes_are_too_few_to_tell(device):
    """7.9 % of them are missing, which is what a checksum a packet would make up for in bytes."""
    counts, acks = COUNTS[device], 100_000
    read = port(counts, packets=0, acks=5_000)
    assert held(port(counts, packets=0, acks=acks, earlier=read)).passed
    gate = held(port(counts, packets=0, acks=acks, acks_share=0.921, earlier=read))
    assert (gate.passed, gate.measured) == (False, pytest.approx(-0.079, abs=0.06))


def test_a_local_testbeds_devices_are_known():
    local = {"topology": {"kind": "local", "nodes": [], "links": []}}
    assert held(port(COUNTS["handed"], acks=1000), local).passed
    assert held(port(COUNTS["frames"], acks=1000), local).passed is False


@pytest.mark.parametrize(
    ("earlier", "why"),
    [
        (None, "too few packets passed"),
        (port(COUNTS["handed"], packets=10), "too few packets passed"),
        (port(COUNTS["handed"], packets=0, acks=100_000, acks_share=0.921), "no reading agrees with the capture"),
        (
            port(lambda packets, _: (packets // 2 * 45, packets // 2 * (WHOLE + 44 * FRAME))),
            "no reading agrees with the capture",
        ),
        (port(COUNTS["handed"], packets=0, acks=5000), "several readings agree with the capture"),
    ],
)
def test_a_device_that_was_not_read_gives_the_word(earlier, why):
    gate = held(port(COUNTS["handed"], acks=1000, earlier=earlier))
    assert (gate.passed, gate.required) == (None, "too few" not in why)
    assert re.search(
        f"cannot tell what its device counts: (by|in) the run's first seconds {why}; let `orch doctor`", gate.message
    )
    assert "measure a longer warm-up" in gate.message


def test_a_device_that_was_not_read_fails_where_no_reading_explains_what_it_counted():
    assert held(port(COUNTS["handed"], acks=100_000, acks_share=0.5, earlier=None)).passed is False


READING = {
    "handed": "packets as they are handed over",
    "frames": "frames",
    "checksums": "frames with their checksums",
    "no headers": "frames without Ethernet's headers",
    "preambles": "frames with all that stands between them",
    "netvsc": "frames, and bytes as they are handed over",
}


def doctored(*counts, port="eth0"):
    """The manifest of a run on hosts of which `orch doctor` has measured that a device counts so."""
    found = {"node": "h1", "port": port, "direction": "in", "counts": [READING[one] for one in counts]}
    return {**INVENTORY, "device_readings": [{**found, "when_ns": 1_795_000_000 * 10**9}]}


@pytest.mark.parametrize("early", [None, port(COUNTS["handed"], packets=2)])
def test_a_kept_reading_judges_where_the_first_seconds_cannot_tell(early):
    """7.9 % of the acknowledgements are missing, which joined packets make up for if they are counted as frames."""
    lacking = port(COUNTS["handed"], packets=184, acks=100_000, acks_share=0.921, earlier=early)
    alone = held(lacking)
    assert (alone.passed, alone.required) == (None, False)
    gate = held(lacking, doctored("handed"))
    assert (gate.passed, gate.measured) == (False, pytest.approx(-0.079, abs=0.001))
    assert "; it counts packets as they are handed over, by `orch doctor` on 2026-11-18; " in gate.message


@pytest.mark.parametrize("device", COUNTS)
def test_a_whole_capture_passes_by_the_kept_reading(device):
    gate = held(port(COUNTS[device], packets=184, acks=100_000), doctored(device))
    assert gate.passed
    assert gate.message.endswith(f"; it counts {READING[device]}, by `orch doctor` on 2026-11-18")


def test_a_capture_that_misses_some_from_the_beginning_is_told_by_the_kept_reading():
    early = port(COUNTS["frames"], packets=0, acks=100_000, acks_share=0.921)
    lacking = port(COUNTS["frames"], packets=0, acks=100_000, acks_share=0.921, earlier=early)
    assert held(lacking).passed is None
    assert held(lacking, doctored("frames")).passed is False


def test_of_several_readings_of_the_first_seconds_the_kept_one_judges():
    early = port(COUNTS["handed"], packets=0, acks=5000)
    later = port(COUNTS["handed"], acks=1000, earlier=early)
    assert held(later).passed is None
    gate = held(later, doctored("handed"))
    assert gate.passed
    assert gate.message.endswith(
        "it counts packets as they are handed over, by `orch doctor` on 2026-11-18 and the run's first seconds"
    )


def test_a_kept_reading_that_differs_from_the_first_seconds_is_told():
    early = port(COUNTS["frames"], packets=2000)
    gate = held(port(COUNTS["frames"], earlier=early), doctored("handed"))
    assert (gate.passed, gate.required) == (None, True)
    told = (
        "by `orch doctor` on 2026-11-18 it counts packets as they are handed over, by the run's first seconds frames: "
    )
    assert told + "run `orch doctor` again" in gate.message
    alike = held(port(COUNTS["checksums"], earlier=port(COUNTS["checksums"], packets=2000)), doctored("frames"))
    assert alike.passed
    assert "it counts frames, by the run's first seconds frames with their checksums: run" in alike.message


def test_a_kept_reading_of_another_device_or_an_unknown_one_says_nothing():
    lacking = port(COUNTS["handed"], packets=184, acks=100_000, acks_share=0.921)
    assert held(lacking, doctored("handed", port="eth1")).passed is None
    unknown = doctored("handed")
    unknown["device_readings"][0]["counts"] = ["parcels"]
    assert held(lacking, unknown).passed is None


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
