"""Live metrics: what is told of a run is what they say, over HTTP and in a file."""

from __future__ import annotations

import socket
import urllib.request
from dataclasses import replace

import pytest

from orchestrator.core.errors import ConfigError, StoreError
from orchestrator.execution.actions import host_counters
from orchestrator.execution.observers import metrics
from tests.helpers.machine import free_port
from tests.helpers.metrics_help import MANIFEST, a_run, expressions, logged, names_in, results, sample


@pytest.fixture
def live():
    return metrics.Metrics()


def value(live, name, **labels):
    return live.registry.get_sample_value(name, labels)


def test_iterations_are_a_histogram_by_rank(live):
    for seconds in (0.1, 0.2, 30.0):
        live.iteration(logged(0, seconds), job="training", rank=1)
    labels = {"training": "training", "rank": "1"}
    assert value(live, "orch_iteration_seconds_count", **labels) == 3
    assert value(live, "orch_iteration_seconds_sum", **labels) == pytest.approx(30.3)


def test_loads_and_throughput_are_at_full_size(live):
    a_run(live, ended=False)
    assert value(live, "orch_load_requested_bits_per_second", host="h1") == 100e6
    assert value(live, "orch_load_received_bits_per_second", host="h1") == 90e6
    assert value(live, "orch_host_receive_bits_per_second", host="h1") == 1000 * 8 * 10
    assert value(live, "orch_host_transmit_bits_per_second", host="h1") == 2000 * 8 * 10
    assert value(live, "orch_host_queue_dropped_packets_total", host="h1") == 1000
    assert value(live, "orch_host_retransmits_total", host="h1") == 1000


def test_counters_that_were_set_back_do_not_fall(live):
    live.hosts({"h1": sample(grown=1000)}, scale=1)
    live.hosts({"h1": sample(second=1, grown=10)}, scale=1)
    assert value(live, "orch_host_retransmits_total", host="h1") == 0


def test_one_phase_at_a_time_and_none_after_the_run(live):
    live.phase("open")
    live.phase("window")
    assert value(live, "orch_phase", phase="open") is None
    assert value(live, "orch_phase", phase="window") == 1
    assert value(live, "orch_phase_seconds_total", phase="open") >= 0
    a_run(live)
    assert value(live, "orch_phase", phase="window") is None
    assert value(live, "orch_run_info", run="r1", experiment="e", sweep="s1") is None
    assert value(live, "orch_runs_total", outcome="completed") == 1
    assert value(live, "orch_windows_total", valid="true") == 1
    assert value(live, "orch_capture_dropped_packets_total") == 3


def test_the_endpoint_is_of_this_machine_and_goes_with_the_run():
    port = free_port()
    with metrics.served(str(port)) as live:
        a_run(live)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            assert 'orch_runs_total{outcome="completed"} 1.0' in answer.read().decode()
        with pytest.raises(ConfigError, match="accepted: a port that is free"), metrics.served(f"127.0.0.1:{port}"):
            pass
    socket.create_server(("127.0.0.1", port)).close()


@pytest.mark.parametrize("address", ["", "localhost", "99999", "a:b", "-1"])
def test_an_address_that_is_none_is_said(address):
    with pytest.raises(ConfigError, match="accepted: a port"), metrics.served(address):
        pass


def test_results_of_a_sweep_are_a_text_file(tmp_path):
    text = results(tmp_path / "orch.prom").read_text()
    labels = 'point="p0",sweep="nightly",training="training",values="traffic.0.iperf.load=1gbit"'
    assert f"orch_point_mean_seconds{{{labels}}} 0.15" in text
    assert 'orch_sweep_status{sweep="nightly"} 3.0' in text
    assert 'orch_point_valid_repetitions{point="p1",sweep="nightly",values="traffic.0.iperf.load=2gbit"} 0.0' in text
    with pytest.raises(StoreError, match="cannot be written"):
        results(tmp_path / "no" / "folder.prom")


def test_the_dashboard_asks_for_what_there_is(live, tmp_path):
    a_run(live, ended=False)
    running = metrics.exposition(live)
    a_run(live)
    there = names_in(running) | names_in(metrics.exposition(live)) | names_in(results(tmp_path / "f").read_text())
    asked = {name for expression in expressions() for name in names_in(expression)}
    assert asked <= there
    exported = {name for name in there if not name.endswith(("_created", "_bucket", "_sum", "_count"))}
    shown = {name.removesuffix("_total").removesuffix("_bucket").removesuffix("_count") for name in asked}
    assert {name.removesuffix("_total") for name in exported} <= shown, "and leaves nothing out"


def test_a_run_of_another_id_begins_with_nothing_of_the_last(live):
    a_run(live)
    live.run_began(replace(MANIFEST, run="r2"))
    live.hosts({"h1": sample(second=5, grown=10**6)}, scale=1)
    assert value(live, "orch_host_receive_bits_per_second", host="h1") is None


SNMP = """\
Ip: Forwarding DefaultTTL
Ip: 1 64
Tcp: RtoAlgorithm RtoMin RetransSegs InErrs
Tcp: 1 200 4711 0
"""
TC = """\
qdisc tbf 1: root refcnt 9 rate 250Mbit burst 31250b lat 5ms
 Sent 1500 bytes 3 pkt (dropped 42, overlimits 7 requeues 0)
 backlog 0b 0p requeues 0
"""


def test_what_hosts_say_is_read():
    assert host_counters.retransmits(SNMP) == 4711
    assert host_counters.retransmits("") == host_counters.retransmits("Tcp: a\nTcp: 1\n") == 0
    assert host_counters.queue(TC) == (42, 0)
    assert host_counters.queue(TC.replace("backlog 0b 0p", "backlog 12Kb 9p")) == (42, 12 * 1024)
    assert host_counters.queue("") == (0, 0)


def test_processors_are_busy_but_for_idling_and_waiting_for_disks():
    stat = "cpu  10 1 5 70 4 2 3 5 9 0\ncpu0 1 2 3 4 5 6 7 8 9 0\n"
    assert host_counters.processor_ticks(stat) == (26, 100)
    assert host_counters.processor_ticks("") == host_counters.processor_ticks("cpu 1 2 x 4 5 6 7 8") == (0, 0)
