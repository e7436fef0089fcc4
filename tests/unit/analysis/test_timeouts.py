"""Retransmission time-outs: whose they were, which iterations waited for them, and what becomes of the window."""

from __future__ import annotations

import socket
import struct

import numpy as np
import pytest

from orchestrator.agents import tcp_source
from orchestrator.analysis.stats.iterations import JobSeries
from orchestrator.analysis.windows import timeouts
from orchestrator.validity.gates import timeouts as gate_module
from tests.helpers import gate_windows, manifests
from tests.helpers.made_tables import table

SECOND = 10**9
BEGIN = 1_795_000_000 * SECOND
RING = ("10.0.0.1", 40001, "10.0.0.2", 29501)
CROSS = ("10.0.0.1", 40002, "10.0.0.3", 15201)


def manifest(scale=100, **more):
    nodes = [
        {"name": f"h{n}", "kind": "host", "rails": [{"address": f"10.0.0.{n}", "device": "eth0"}]} for n in (1, 2, 3)
    ]
    ranks = [{"rank": n, "node": f"h{n + 1}", "logs": True} for n in (0, 1)]
    return manifests.made(
        scale=scale,
        topology={"kind": "local", "nodes": nodes, "links": []},
        jobs=[{"name": "training", "workload": "ddp", "ranks": ranks}],
        **more,
    )


def iterations(late=(), *, count=100, seconds=0.2, by=0.25):
    """Iterations of a job, of which those in `late` take longer."""
    took = np.full(count, seconds)
    took[list(late)] += by
    ends = BEGIN + np.cumsum((took * SECOND).astype(np.int64))
    starts = ends - (took * SECOND).astype(np.int64)
    return JobSeries(
        job="training",
        ranks=(0, 1),
        iteration=np.arange(count),
        seconds=took,
        compute_s=took / 2,
        wait_s=took / 2,
        start_ns=starts,
        end_ns=ends,
        incomplete=0,
    )


def sockets(part, of, *, kernel=True):
    """Samples every 0.1 s of connections that time out in the middle of some iterations; `of` gives these by ends."""
    rows = []
    for ends, late in of.items():
        at = np.array([(part.start_ns[one] + part.end_ns[one]) // 2 for one in late])
        for time_ns in range(BEGIN, int(part.end_ns[-1]) + SECOND, SECOND // 10):
            total = int((at <= time_ns).sum())
            recent = int(((at <= time_ns) & (at > time_ns - SECOND // 10)).sum())
            told = {"timeouts": total if kernel else None, "backoff": recent, "rto_s": 0.201}
            keys = dict(zip(("src", "src_port", "dst", "dst_port"), ends, strict=True))
            rows.append({"node": "h1", "time_ns": time_ns, **keys, **told})
    return table("sockets", rows)


def judged(part, found, *, validity=None, scale=100, grown=None):
    captured = table("capture_flows", [flow(RING, "training"), flow(CROSS, "iperf0")])
    run = timeouts.timed_out(found)
    about = manifest(scale, validity=validity or {})
    waited = timeouts.waits(run, [part], about, flows=table("flows", []), captured=captured)
    return gate_windows.judged(gate_module, manifest=about, timeout_waits=waited, grown=grown or {})


def flow(ends, name):
    return dict(zip(("src", "src_port", "dst", "dst_port"), ends, strict=True)) | {"node": "h1", "name": name}


@pytest.mark.parametrize("kernel", [True, False])
def test_iterations_that_wait_for_time_outs_make_a_scaled_window_invalid(kernel):
    late = (10, 30, 50, 70, 90)
    part = iterations(late)
    (gate,) = judged(part, sockets(part, {RING: late, CROSS: (20, 60)}, kernel=kernel))
    assert (gate.passed, gate.required) == (False, True)
    assert gate.measured == pytest.approx(5 * 0.25 / (100 * 0.2 + 5 * 0.25))
    assert "5 of 100 iterations waited for time-outs" in gate.message
    assert f"{'' if kernel else 'at least '}5 time-outs were its own" in gate.message
    assert "training rank 0 (h1) to rank 1 (h2): 5, iperf0 h1 to h3: 2" in gate.message


def test_at_full_size_they_are_a_remark_and_so_they_are_where_a_file_says_so():
    late = (10, 30, 50)
    part = iterations(late)
    for more in ({"scale": 1}, {"validity": {"timeouts": "ignore"}}):
        (gate,) = judged(part, sockets(part, {RING: late}), **more)
        assert (gate.passed, gate.required) == (False, False)
    (gate,) = judged(part, sockets(part, {RING: late}), validity={"timeouts": 0.05})
    assert gate.passed


def test_when_every_iteration_waits_they_are_held_against_the_shortest():
    part = iterations(range(1, 100))
    (gate,) = judged(part, sockets(part, {RING: range(100)}))
    assert gate.passed is False
    assert "99 of 100 iterations waited" in gate.message


def test_long_iterations_without_time_outs_and_time_outs_of_traffic_are_not_blamed():
    part = iterations((10, 30, 50))
    (gate,) = judged(part, sockets(part, {RING: (), CROSS: (10, 30, 50)}))
    assert gate.passed
    assert "0 of 100 iterations waited" in gate.message
    (gate,) = judged(part, sockets(part, {RING: ()}), grown={("h1", "", "tcp.timeouts"): 0.0})
    assert (gate.passed, gate.message) == (True, "job training: no connection was seen to time out")


def test_a_run_that_is_older_is_not_judged():
    rows = [{"node": "h1", "time_ns": BEGIN, "src": "10.0.0.1", "src_port": 1, "dst": "10.0.0.2", "dst_port": 2}]
    rows = [{**row, "timeouts": None, "backoff": None, "rto_s": None} for row in rows]
    assert timeouts.timed_out(table("sockets", rows)) is None
    assert timeouts.waits(None, [iterations()], manifest(), flows=table("flows", []), captured=None) == ()


def test_a_kernels_own_count_is_read_where_it_stands(tmp_path):
    file = tmp_path / "netstat"
    file.write_text("TcpExt: SyncookiesSent TCPTimeouts TCPSpuriousRTOs\nTcpExt: 1 23 4\nIpExt: InOctets\nIpExt: 7\n")
    assert tcp_source.Timeouts(0.1, str(file)).rows() == [("23",)]
    file.write_text("")
    assert tcp_source.Timeouts(0.1, str(file)).rows() == [("",)]


@pytest.mark.parametrize(("length", "counted"), [(248, 3), (232, "")])
def test_tcp_info_tells_time_outs_where_it_is_long_enough(length, counted):
    info = bytearray(length)
    info[4] = 2
    struct.pack_into("=I", info, 8, 204_000)
    struct.pack_into("=IQ", info, 148, tcp_source.UNKNOWN, 0)
    struct.pack_into("=I", info, 228, 65_536)
    if length > 242:
        struct.pack_into("=H", info, 240, 3)
    message = bytearray(tcp_source.MESSAGE_BYTES)
    message[16] = socket.AF_INET
    message += struct.pack("=HH", 4 + length, tcp_source.INET_DIAG_INFO) + info
    row = dict(zip(tcp_source.Sockets.columns, (*tcp_source.parse(bytes(message)), "job.rank0"), strict=True))
    assert (row["timeouts"], row["backoff"], row["rto_us"]) == (counted, 2, 204_000)
    assert (row["snd_wnd_bytes"], row["min_rtt_us"], row["process"]) == (65_536, "", "job.rank0")


def test_a_scaled_run_without_the_collector_is_told_to_add_it():
    (gate,) = gate_windows.judged(gate_module, manifest=manifest(100))
    assert (gate.passed, gate.required) == (None, False)
    assert "add `tcp` to `collect`" in gate.message
    assert gate_windows.judged(gate_module, manifest=manifest(1)) == []
