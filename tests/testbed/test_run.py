from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import duckdb
import pytest

from orchestrator.report.runs import Run
from tests.helpers.orch_runs import last_json, light, measured, nothing_is_left, orch, ring, small, write

pytestmark = [pytest.mark.testbed, pytest.mark.rights]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """One run of the small experiment, with a report."""
    folder = tmp_path_factory.mktemp("finished")
    summary, results = measured(write(folder, small()), folder)
    (run,) = summary["runs"]
    return summary, run, results


@pytest.mark.alone
def test_a_run_is_valid_and_says_what_was_asked_and_what_was_achieved(finished):
    _, run, _ = finished
    assert run["outcome"] == "completed"
    (window,) = run["windows"]
    (job,) = window["jobs"]
    assert job["iterations"] == 20
    assert 0.04 < job["p50_s"] <= job["p99_s"]
    (cross,) = window["cross_traffic"]
    assert cross["requested_bps"] == 5e9
    assert cross["requested_raw_bps"] == 5e7
    assert cross["achieved_bps"] == pytest.approx(5e9, rel=0.05)
    assert run["capture"]["captured"] > 1000
    assert run["capture"]["dropped"] == 0


@pytest.mark.alone
def test_the_payload_on_the_wire_is_what_theory_says(finished):
    """Salamy, equation 3.1: 2 (N-1)/N times 4 bytes a parameter, here of 35,048 for two ranks."""
    _, run, _ = finished
    sent = run["windows"][0]["jobs"][0]["bytes_per_iteration"]
    assert sent["theory_raw"] == 3504872 // 100 * 4
    assert sent["theory"] == sent["theory_raw"] * 100
    # 20 iterations of 140 kB: the window's edges weigh more than in a long one
    assert sent["measured_raw"] == pytest.approx(sent["theory_raw"], rel=0.05)


@pytest.mark.alone
def test_every_phase_is_timed_and_nothing_is_left(finished):
    _, run, _ = finished
    for phase in ("open", "check", "facts", "collectors", "ranks", "preflight", "warm-up", "window", "drain", "fetch"):
        assert run["phases"][phase] >= 0
    assert run["phases"]["total"] >= run["phases"]["window"] > 20 * 0.04
    nothing_is_left(run["run"], within_s=0.5)


@pytest.mark.alone
def test_the_sealed_folder_is_whole(finished):
    _, run, results = finished
    folder = results / "small" / run["run"]
    manifest = json.loads((folder / "manifest.json").read_bytes())
    listed = {entry["path"]: entry for entry in manifest["artifacts"]}
    there = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()} - {"manifest.json"}
    assert set(listed) == there
    some = "hosts/h1/training-rank0/iterations.jsonl"
    assert listed[some]["sha256"] == hashlib.sha256((folder / some).read_bytes()).hexdigest()
    assert {f"hosts/{host}/{when}.json" for host in ("h1", "h2", "h3") for when in ("before", "after")} <= there
    before = json.loads((folder / "hosts/h1/before.json").read_bytes())
    assert any(qdisc["kind"] == "tbf" for qdisc in before["qdiscs"])
    assert "tcp-segmentation-offload: off" in before["offloads"]
    one_kernel = {"offset_ns": 0, "uncertainty_ns": 0}
    assert {tuple(clock) for clock in manifest["clocks"].values()} == {("before", "after")}
    assert all(one_kernel.items() <= clock[when].items() for clock in manifest["clocks"].values() for when in clock)
    assert set(manifest["kernels"]["nodes"].values()) == {manifest["kernels"]["controller"]}


@pytest.mark.alone
def test_the_training_is_seen_in_its_traffic(finished):
    """Two ranks make a ring of two, a pair; its iterations show on the wire as they do in the log."""
    _, run, results = finished
    sealed = Run(results / "small" / run["run"])
    (job,) = sealed.views["w1"].jobs
    (pattern,) = job.patterns
    assert (pattern.shape, sorted(sealed.traffic.hosts[host] for host in pattern.hosts)) == ("pair", ["h1", "h2"])
    assert pattern.score > 0.9
    assert job.logged == 20
    (logged,) = run["windows"][0]["jobs"]
    if logged["p99_s"] < 1.2 * logged["p50_s"]:  # a busy machine makes iterations that are not alike
        assert job.iterations.period.found
        periods = job.iterations.period.period_s / job.logged_s  # of twenty every second or third may be most alike
        assert periods == pytest.approx(max(1, round(periods)), rel=0.1)
    (report,) = (results / "small").glob("report-*.html")
    figures = report.with_name(f"{report.stem}-figures")
    assert {"heatmap.svg", "flowchart.svg", "timeline.json.gz"} <= {path.name for path in figures.iterdir()}


@pytest.mark.alone
def test_tables_are_read_by_other_tools(finished):
    _, run, results = finished
    tables = results / "small" / run["run"] / "tables"

    def ask(query):
        return duckdb.sql(query.format(**{path.stem: f"'{path}'" for path in tables.glob("*.parquet")})).fetchall()

    assert ask("select count(*), count(distinct rank) from {iterations} where window_name = 'w1'") == [(40, 2)]
    kinds = dict(ask("select kind, sum(wire_bytes) from {capture_flows} where direction = 'in' group by kind"))
    assert kinds["cross"] > 1e6
    assert kinds["training"] > 1e6
    (captured,) = ask("select sum(packets) from {capture_flows} where node = 'h3'")
    (counted,) = ask("select captured from {captures} where node = 'h3'")
    assert captured == counted
    assert ask("select count(*) from {counters} where counter like 'qdisc.%' and node = 'switch'")[0][0] > 0
    assert ask("select distinct congestion from {sockets} where dst_port = 15201") == [("cubic",)]


@pytest.mark.alone
def test_the_report_stands_alone(finished):
    summary, _, _ = finished
    page = Path(summary["report"]).read_text(encoding="utf-8")
    assert "<svg" in page
    assert 'src="http' not in page
    assert 'href="http' not in page


@pytest.mark.alone
def test_ls_and_show_tell_of_the_run(finished):
    _, run, results = finished
    status, out, _ = orch("ls", "--results", results)
    assert (status, run["run"] in out, "valid" in out) == (0, True, True)
    status, out, _ = orch("show", "last", "--results", results)
    assert status == 0
    assert re.search(r"ok +load +iperf0 from h1 to h3: ", out)


@pytest.mark.alone
def test_the_resolved_experiment_is_the_same_experiment(finished, tmp_path):
    _, run, results = finished
    kept = results / "small" / run["run"] / "experiment.yaml"
    plans = [orch("plan", path, "--json") for path in (kept, write(tmp_path, small()))]
    assert plans[0][0] == 0, plans[0][2]
    points = [json.loads(out)["runs"][0]["point"] for _, out, _ in plans]
    assert points[0] == points[1] == run["run"].rpartition("-")[2]


def test_windows_jobs_and_a_tighter_place_in_one_run(tmp_path):
    """Two trainings share the network through two windows, one without and one with cross traffic, behind a rate."""
    experiment = small(
        workload=None,
        conditions=[{"congestion-control": "cubic"}, {"rate": {"where": "nic", "host": "h1", "rate": "12gbit"}}],
        jobs=[
            {"name": "one", "workload": ring(0.06, hosts=["h1", "h2"])},
            {"name": "two", "workload": ring(0.03, hosts=["h2", "h3"])},
        ],
        traffic=None,
        windows=[
            {"name": "quiet"},
            {"name": "loaded", "traffic": [{"iperf": {"from": "h1", "to": "h3", "load": "4gbit", "streams": 2}}]},
        ],
        measure={"warmup": 2, "iterations": 20, "at_most": "30s"},
    )
    summary, _ = measured(write(tmp_path, experiment), tmp_path, "--no-report")
    (run,) = summary["runs"]
    quiet, loaded = run["windows"]
    assert [window["window"] for window in run["windows"]] == ["quiet", "loaded"]
    for window in run["windows"]:
        counts = {job["job"]: job["iterations"] for job in window["jobs"]}
        assert counts["one"] >= 20
        assert counts["two"] > counts["one"], "the faster job goes on while the slower one is measured"
    assert quiet["cross_traffic"] == []
    assert loaded["cross_traffic"][0]["achieved_bps"] == pytest.approx(4e9, rel=0.05)
    nothing_is_left(run["run"])


def test_a_load_that_cannot_be_reached_is_refused_before_the_window_and_taken_when_told_so(tmp_path):
    """One stream behind a 4 Gbit/s place cannot carry 8."""
    experiment = light(
        conditions=[{"rate": {"where": "switch-port", "host": "h3", "rate": "4gbit"}}],
        traffic=[{"iperf": {"from": "h1", "to": "h3", "load": "8gbit", "streams": 1, "most_streams": 1}}],
    )
    path = write(tmp_path, experiment)
    status, out, err = orch("run", path, "--results", tmp_path / "a", "--json", "--no-report")
    assert status == 1
    (got,) = set(re.findall(r"h3 receives ([\d.]+)gbit of 8gbit", err))
    assert float(got) == pytest.approx(4, rel=0.1)
    assert last_json(out)["runs"][0]["stage"] == "preflight"
    taken = ("--set", "validity.load=as-achieved", "--set", "measure.iterations=20")
    summary, _ = measured(path, tmp_path / "b", *taken, "--no-report")
    (run,) = summary["runs"]
    assert run["windows"][0]["cross_traffic"][0]["achieved_bps"] == pytest.approx(4e9, rel=0.05)


def test_losses_and_delays_are_made_counted_judged_and_undone(tmp_path):
    lossy = {"loss": {"host": "h2", "share": "0.5%", "where": "switch-port"}}
    delayed = {"delay": {"host": "h1", "time": "10ms"}}
    experiment = light(conditions=[{"congestion-control": "cubic"}, lossy, delayed], traffic=None)
    summary, results = measured(write(tmp_path, experiment), tmp_path / "results", "--no-report")
    (run,) = summary["runs"]
    manifest = json.loads((results / "small" / run["run"] / "manifest.json").read_bytes())
    (hits,) = manifest["hits"]
    assert hits["name"] == "loss at switch:p-h2"
    assert hits["seen"] > 1000
    (gate,) = (gate for gate in manifest["windows"][0]["gates"] if gate["name"] == "hits")
    assert gate["passed"]
    assert f"{hits['hit']} of {hits['seen']} packets of the run" in gate["message"]
    delays = results / "small" / run["run"] / "tables/delays.parquet"
    (held,) = duckdb.read_parquet(str(delays)).project("node, requested_s, dropped, packets").fetchall()
    assert held[:3] == ("h1", 0.01, 0)
    assert held[3] > 1000
    nothing_is_left(run["run"])
