from __future__ import annotations

import json
import math

import numpy as np
import pyarrow as pa
import pytest

from orchestrator.analysis.stats.iterations import series, spent
from orchestrator.analysis.traffic import throughput
from orchestrator.analysis.traffic.throughput import Bins
from orchestrator.store.tabular import tables
from tests.helpers.sealed_run import BEGAN_NS, SENT_BYTES, THEORY_BYTES, loose, make_run


def manifest(run):
    return json.loads((run / "manifest.json").read_text())


def gate(run, name, window=0):
    return [gate for gate in manifest(run)["windows"][window]["gates"] if gate["name"] == name]


def test_a_good_run_gives_the_numbers_that_it_was_made_of(tmp_path):
    run = make_run(tmp_path, tolerances=loose(), windows_count=2)
    assert manifest(run)["valid"], manifest(run)["reasons"]
    first, second = tables.read(run / "tables", "training").to_pylist()
    assert (first["window_name"], second["window_name"]) == ("w1", "w2")
    assert (first["iterations"], first["ranks"], first["theory_bytes"]) == (120, 4, THEORY_BYTES)
    assert first["sent_bytes"] == pytest.approx(SENT_BYTES, rel=0.05)
    assert first["mean_low_s"] < first["mean_s"] < first["mean_high_s"]
    assert first["mean_s"] == pytest.approx(0.206, rel=0.05)
    (load, _) = tables.read(run / "tables", "loads").to_pylist()
    assert load["achieved_bps"] == pytest.approx(150e6, rel=0.001)


def test_captures_that_filled_their_budget_count_for_windows_that_ended_before(tmp_path):
    run = make_run(tmp_path, tolerances=loose(), windows_count=2, ended_ns=BEGAN_NS + 40_000_000_000)
    first, second = manifest(run)["windows"]
    assert (first["end_ns"] < BEGAN_NS + 40_000_000_000 < second["end_ns"], first["valid"]) == (True, True)
    assert not second["valid"]
    told = "capture at h1:eth0 ended early (its host's budget of disk was used up): no figure is taken from it"
    assert told in second["reasons"]
    one, other = tables.read(run / "tables", "training").to_pylist()
    assert one["sent_bytes"] == pytest.approx(SENT_BYTES, rel=0.05)
    assert np.isnan(other["sent_bytes"])


def test_a_load_that_misses_makes_its_window_invalid(tmp_path):
    run = make_run(tmp_path, tolerances=loose(), achieved=0.9)
    assert not manifest(run)["valid"]
    assert "off by more" in manifest(run)["reasons"][0]
    (row,) = tables.read(run / "tables", "windows").to_pylist()
    assert row["valid"] is False
    assert "off by more" in row["reasons"]


def test_capture_and_interface_counters_are_held_against_each_other(tmp_path):
    run = make_run(tmp_path, tolerances=loose())
    found = gate(run, "capture-nic")
    assert len(found) == 8
    assert all(entry["passed"] and abs(entry["measured"]) < 0.01 for entry in found)


@pytest.mark.parametrize(("skip", "name", "valid"), [("packets", "load", False), ("counters", "capture-nic", True)])
def test_what_was_not_collected_cannot_be_judged(tmp_path, skip, name, valid):
    run = make_run(tmp_path, tolerances=loose(), skip=(skip,))
    assert manifest(run)["valid"] is valid
    assert all(entry["passed"] is None for entry in gate(run, name))
    assert gate(run, name)


def failed(host, why="ended with status 0 before it was asked to"):
    def change(manifest):
        (launch,) = (launch for launch in manifest["launches"] if launch["node"] == host)
        launch |= {"failed": why, "required": False}

    return change


def figures(run):
    (training,) = tables.read(run / "tables", "training").to_pylist()
    (load,) = tables.read(run / "tables", "loads").to_pylist()
    return training["sent_bytes"], load["achieved_bps"]


@pytest.mark.parametrize("bad", [{"change": failed("h2")}, {"silent": ("h2",)}])
def test_a_capture_that_ended_early_spoils_what_its_node_sent_and_no_more(tmp_path, bad):
    run = make_run(tmp_path, tolerances=loose(), **bad)
    sent, achieved = figures(run)
    assert math.isnan(sent)
    assert achieved == pytest.approx(150e6, rel=0.001)  # it is captured at h1
    (told,) = gate(run, "capture")
    assert (told["passed"], told["required"]) == (False, True)
    assert manifest(run)["reasons"] == [f"w1: {told['message']}"]
    assert told["message"].startswith("capture at h2:eth0 ended early")
    assert [g["message"] for g in gate(run, "capture-nic") if g["passed"] is None] == [
        f"h2:eth0 {way}: no whole capture to hold against the interface's counters" for way in ("in", "out")
    ]


def test_a_load_is_not_taken_from_a_capture_that_ended_early(tmp_path):
    run = make_run(tmp_path, tolerances=loose(), change=failed("h1"))
    assert all(math.isnan(value) for value in figures(run))
    assert not manifest(run)["valid"]
    assert [g["passed"] for g in gate(run, "load")] == [None]


@pytest.mark.parametrize(("planned", "valid"), [(1, True), (2, False)])
def test_ranks_that_were_not_to_log_are_not_missed(tmp_path, planned, valid):
    def mark(manifest):
        for rank in manifest["jobs"][0]["ranks"]:
            rank["logs"] = rank["rank"] < planned

    run = make_run(tmp_path, logging=1, change=mark)
    assert [g["passed"] for g in gate(run, "overlap")] == [valid]
    assert manifest(run)["valid"] is valid


def test_a_capture_of_nothing_that_is_measured_may_end_early(tmp_path):
    def without_h4(manifest):
        (job,) = manifest["jobs"]
        job["ranks"] = [rank for rank in job["ranks"] if rank["node"] != "h4"]
        failed("h4")(manifest)

    run = make_run(tmp_path, tolerances=loose(), change=without_h4)
    assert [g["required"] for g in gate(run, "capture")] == [False]
    assert not math.isnan(figures(run)[0])


@pytest.mark.parametrize(("host", "valid"), [("h3", True), ("h1", False)])
def test_a_capture_that_never_began_gives_no_figures_and_only_fails_the_load_it_should_have_seen(tmp_path, host, valid):
    run = make_run(tmp_path, tolerances=loose(), unseen=(host,), change=failed(host, "no such device"))
    sent, achieved = figures(run)
    assert math.isnan(sent)
    assert math.isnan(achieved) is not valid
    (told,) = gate(run, "capture")
    assert told["message"].startswith(f"capture at {host}:eth0 never began (no such device)")
    assert (told["passed"], told["required"]) == (False, False)
    assert len(gate(run, "capture-drops")) == 4
    assert len(gate(run, "capture-nic")) == 8
    assert manifest(run)["valid"] is valid


@pytest.mark.parametrize(("hosts", "mixed"), [(("h1", "h3"), True), (("h1", "h9"), False)])
def test_jobs_that_share_a_pair_of_hosts_have_no_bytes_of_their_own(tmp_path, hosts, mixed):
    def add_job(manifest):
        ranks = [{"rank": rank, "node": host} for rank, host in enumerate(hosts)]
        manifest["jobs"].append({"name": "other", "workload": "ddp", "ranks": ranks})

    run = make_run(tmp_path, tolerances=loose(), change=add_job)
    one, other = tables.read(run / "tables", "training").to_pylist()
    assert math.isnan(one["sent_bytes"]) is mixed
    assert math.isnan(other["sent_bytes"])
    told = [(g["message"], g["required"]) for g in gate(run, "shared-hosts")]
    text = "jobs training and other share hosts h1 and h3: their bytes cannot be distinguished"
    assert told == ([(text, False)] if mixed else [])


def test_what_was_sent_is_held_against_theory(tmp_path):
    (told,) = gate(make_run(tmp_path, tolerances=loose()), "theory")
    assert (told["passed"], told["required"]) == (False, False)
    assert told["measured"] == pytest.approx(SENT_BYTES / THEORY_BYTES - 1, abs=0.01)
    assert 0.02 < told["limit"] < 0.021  # one bin of 10 ms in 24 s


@pytest.mark.parametrize(("offset_ns", "passed"), [(600_000, True), (950_000, False)])
def test_all_that_a_clock_moved_by_counts_on_top_of_its_uncertainty(tmp_path, offset_ns, passed):
    def move(manifest):
        manifest["clocks"]["h1"]["after"]["offset_ns"] = 1200 + offset_ns

    run = make_run(tmp_path, tolerances=loose(), change=move)
    (told,) = (g for g in gate(run, "clock") if g["message"].startswith("h1"))
    assert told["measured"] == pytest.approx((offset_ns + 90_000) / 1e9)
    assert told["passed"] is passed


def test_no_iterations_is_invalid_and_no_error(tmp_path):
    run = make_run(tmp_path, tolerances=loose(), skip=("iterations",))
    assert "0 iterations" in " ".join(manifest(run)["reasons"])
    (row,) = tables.read(run / "tables", "training").to_pylist()
    assert math.isnan(row["mean_s"])


def iterations(rows):
    columns = {name: [0.0] * len(rows) for name in ("forward_s", "backward_s", "wait_s")}
    columns |= {
        "job": ["a"] * len(rows),
        "rank": [r[0] for r in rows],
        "iteration": [r[1] for r in rows],
        "start_ns": [r[2] for r in rows],
        "end_ns": [r[3] for r in rows],
        "seconds": [(r[3] - r[2]) / 1e9 for r in rows],
    }
    return pa.table(columns)


def test_a_jobs_iteration_is_the_mean_over_ranks_of_those_that_all_logged():
    job = series(iterations([(0, 0, 0, 100), (1, 0, 10, 130), (0, 1, 100, 220), (1, 2, 200, 300)]), "a")
    assert job.iteration.tolist() == [0]
    assert job.seconds.tolist() == [pytest.approx(110e-9)]
    assert job.span_ns == (0, 130)
    assert job.incomplete == 2
    assert job.within(0, 2).incomplete == 2
    assert series(iterations([]), "a").span_ns is None


def test_bins_on_an_edge_count_by_their_share():
    bins = Bins(np.array([0, 10, 20]), np.array([100.0, 100.0, 100.0]), 10)
    assert bins.within(5, 25) == 200
    assert bins.within(30, 40) == 0


def test_the_longest_gap_reaches_to_the_edges_of_the_window():
    bins = Bins(np.array([3, 4, 8]) * 10**9, np.array([1.0, 1.0, 1.0]), 10**9)
    assert bins.longest_gap_s(0, 9 * 10**9) == pytest.approx(3.0)
    assert bins.longest_gap_s(3 * 10**9, 20 * 10**9) == pytest.approx(11.0)
    assert Bins(np.zeros(0, int), np.zeros(0), 10**9).longest_gap_s(0, 5 * 10**9) == pytest.approx(5.0)


def test_rates_over_time():
    at, rate = Bins(np.arange(10) * 10**7, np.full(10, 1250.0), 10**7).rate(0, 10**8, 2 * 10**7)
    assert at.tolist() == pytest.approx([0.01, 0.03, 0.05, 0.07, 0.09])
    assert rate.tolist() == pytest.approx([1e6] * 5)


def test_two_senders_to_one_receiver_are_told_apart_by_their_flows():
    packets = pa.table(
        {
            "node": ["h1"] * 2,
            "port": ["eth0"] * 2,
            "direction": ["in"] * 2,
            "kind": ["cross"] * 2,
            "name": ["x0"] * 2,
            "bin_ns": [0, 10**7],
            "wire_bytes": [500, 500],
            "payload_bytes": [500, 500],
            "repeated_bytes": [0, 0],
        }
    )
    flows = pa.table(
        {
            "node": ["h1"] * 3,
            "port": ["eth0"] * 3,
            "direction": ["in"] * 3,
            "kind": ["cross"] * 3,
            "name": ["x0"] * 3,
            "src": ["a", "b", "b"],
            "first_ns": [0, 0, 10**9],
            "last_ns": [2 * 10**7, 4 * 10**7, 2 * 10**9],
            "wire_bytes": [750, 500, 10**6],
        }
    )
    ask = {"source": "x0", "dst": "h1", "port": "eth0", "begin_ns": 0, "end_ns": 2 * 10**7}
    assert throughput.achieved_bps(packets, flows, src_address="a", **ask) == pytest.approx(750 * 8 / 0.02)
    assert throughput.achieved_bps(packets, flows, src_address="b", **ask) == pytest.approx(250 * 8 / 0.02)
    assert math.isnan(throughput.achieved_bps(packets, flows, src_address="a", **{**ask, "dst": "h9"}))


def test_ranks_that_share_a_node_share_what_its_port_sent():
    packets = pa.table(
        {
            "node": ["h1", "h2"],
            "port": ["eth0"] * 2,
            "direction": ["out"] * 2,
            "kind": ["training"] * 2,
            "name": ["a"] * 2,
            "bin_ns": [0, 0],
            "wire_bytes": [0, 0],
            "payload_bytes": [4000, 2100],
            "repeated_bytes": [0, 100],
        }
    )
    ask = {"job": "a", "ports": {"h1": ("eth0",), "h2": ("eth0",)}, "span_ns": (0, 10**7)}
    found = throughput.sent_bytes(packets, nodes=["h1", "h1", "h2", "h2"], iterations=[10.0] * 4, **ask)
    assert found == pytest.approx((150, 1.0))
    found = throughput.sent_bytes(packets, nodes=["h2", "h3"], iterations=[10.0, 99.0], **ask)
    assert found == pytest.approx((200, 1.0))
    assert math.isnan(throughput.sent_bytes(packets, nodes=["h3"], iterations=[10.0], **ask)[0])


def test_workers_that_go_at_their_own_pace_are_counted_by_what_each_has_done():
    table = pa.table(
        {
            "job": ["a"] * 5 + ["b"],
            "rank": [0, 0, 0, 1, 1, 0],
            "start_ns": [0, 10, 20, 0, 20, 0],
            "end_ns": [10, 20, 30, 20, 40, 100],
        }
    )
    assert spent(table, "a", (5, 25)) == pytest.approx({0: 2.0, 1: 1.0})
    assert spent(table, "a", (50, 60)) == {0: 0.0, 1: 0.0}
    assert spent(table, "c", (0, 10)) == {}


def test_counters_are_interpolated_and_not_guessed_beyond_their_samples():
    second = 10**9
    counters = pa.table(
        {
            "node": ["h1"] * 3,
            "port": ["eth0"] * 3,
            "counter": ["rx_bytes"] * 3,
            "time_ns": [20 * second, 0, 10 * second],
            "value": [300.0, 100.0, 200.0],
        }
    )
    ask = {"node": "h1", "port": "eth0", "counter": "rx_bytes"}
    assert throughput.counter_growth(counters, span_ns=(5 * second, 15 * second), **ask) == pytest.approx(100)
    assert math.isnan(throughput.counter_growth(counters, span_ns=(5 * second, 25 * second), **ask))
