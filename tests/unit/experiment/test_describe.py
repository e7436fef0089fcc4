"""Plans and runs in words: tables that line up, gaps where nothing was measured, and failed runs without windows."""

from __future__ import annotations

import json
from pathlib import Path

from orchestrator.experiment import runtext
from orchestrator.store.rundir import Entry
from tests.helpers import manifests
from tests.helpers.experiments import GOOD, changed, orch


def manifest(**more):
    first = {"stage": "end", "valid": True, "scale": 10, "repetition": 2, "phases": {"a": 1.234}, "topology": HOSTS}
    return manifests.made(**{**first, **more})


HOSTS = {"kind": "local", "links": [], "nodes": [{"name": "h1"}, {"name": "switch", "kind": "switch"}]}


def training(job="training", **more):
    return {
        "job": job,
        "iterations": 100,
        "sent_bytes": 98.0,
        "theory_bytes": 100.0,
        **{f"{key}{part}_s": 0.15 for key in ("mean", "p50", "p99") for part in ("", "_low", "_high")},
        **more,
    }


def window(**more):
    load = {"source": "iperf0", "src": "h1", "dst": "h2", "requested_bps": 80e6, "achieved_bps": 79e6}
    return {**manifests.NOT_JUDGED, "name": "w1", "valid": True, "training": [training()], "loads": [load], **more}


def test_a_run_is_a_row_with_asked_and_achieved_scaled_back():
    text = runtext.outcomes_text([(Path("/r/e/r1"), manifest(windows=[window()]))], Path("/r/report.html"))
    row = next(line for line in text.splitlines() if line.startswith("#2 "))
    assert row.split() == ["#2", "w1", "100", "150.0", "150.0", "150.0", "800mbit", "790mbit", "0.980", "valid"]
    assert "/r/e/r1" in text
    assert text.endswith("report: /r/report.html")


def test_what_was_not_measured_is_a_dash():
    nothing = None
    load = {"source": "iperf0", "src": "h1", "dst": "h2", "requested_bps": 80e6, "achieved_bps": nothing}
    row = training(mean_s=nothing, p50_s=nothing, p99_s=nothing, sent_bytes=nothing, theory_bytes=nothing)
    text = runtext.outcomes_text([(Path("/r"), manifest(windows=[window(training=[row], loads=[load])]))], None)
    line = next(line for line in text.splitlines() if line.startswith("#2 "))
    assert line.split() == ["#2", "w1", "100", "-", "-", "-", "800mbit", "-", "-", "valid"]


def test_one_load_of_two_that_nobody_saw_makes_the_sum_unknown():
    loads = [
        {"source": "iperf0", "src": "h1", "dst": "h2", "requested_bps": 1e6, "achieved_bps": achieved}
        for achieved in (1e6, None)
    ]
    (row,) = runtext.window_rows(manifest(windows=[window(loads=loads)]))
    assert row[6:8] == ["20mbit", "-"]


def test_jobs_have_rows_of_their_own():
    rows = runtext.window_rows(manifest(windows=[window(training=[training("a"), training("b")])]))
    assert [row[0] for row in rows] == ["#2 a", "#2 b"]


def test_a_failed_run_has_no_rows_but_its_reasons():
    failed = manifest(outcome="failed", stage="preflight", valid=False, reasons=["the run failed at preflight"])
    text = runtext.outcomes_text([(Path("/r"), failed)], None)
    assert "r1: failed (preflight)" in text
    assert "  - the run failed at preflight" in text
    assert "iterations" not in text


def test_a_failed_run_in_words_and_as_json():
    failed = manifest(
        outcome="failed",
        stage="connecting",
        valid=False,
        error="h1: gone\n  remedy: look",
        notes=["odd"],
        jobs=[{"name": "j", "workload": "ddp", "ranks": [{"rank": rank, "node": "h1"} for rank in (0, 1)]}],
    )
    text = runtext.run_text(Entry(Path("/r/e/r1"), failed))
    assert "failed (connecting)" in text
    assert "  error     h1: gone\n  error       remedy: look" in text
    assert "  note      odd" in text
    assert "job       j: ddp, 2 ranks" in text
    summary = json.loads(json.dumps(runtext.run_summary(failed, Path("/r"), outcome="failed"), allow_nan=False))
    assert (summary["outcome"], summary["valid"], summary["windows"]) == ("failed", False, [])


def test_a_manifest_that_was_torn_off_early_can_still_be_told():
    bare = manifests.made(outcome="running", stage="start", controller={})
    entry = Entry(Path("/r/e/r1.partial"), bare)
    assert "r1 of experiment e" in runtext.run_text(entry)
    assert "r1" in runtext.listing([entry], Path("/r"))
    assert runtext.run_summary(bare, entry.path, outcome="lost")["outcome"] == "lost"


def test_gates_show_what_passed_failed_or_could_not_be_judged():
    passed = {"a": True, "b": False, "c": None}
    gates = [{"name": name, "passed": passed[name], "message": "m"} for name in passed]
    text = runtext.run_text(Entry(Path("/r"), manifest(windows=[window(gates=gates, valid=False)])))
    assert "    FAIL b  m\n    ?    c  m\n    ok   a  m" in text
    assert "INVALID" in text


def test_the_summary_scales_back_and_keeps_what_was_measured():
    summary = runtext.run_summary(manifest(windows=[window()]), Path("/r"), outcome="completed")
    (told,) = summary["windows"]
    assert told["jobs"][0]["bytes_per_iteration"] == {
        "measured": 980.0,
        "theory": 1000.0,
        "measured_raw": 98.0,
        "theory_raw": 100.0,
    }
    assert told["cross_traffic"][0]["requested_bps"] == 800e6
    assert told["cross_traffic"][0]["achieved_raw_bps"] == 79e6


def test_unfinished_runs_come_with_what_to_do():
    lost = manifest(outcome="lost", controller={"host": "x"})
    text = runtext.listing([Entry(Path("/r/e/r1.partial"), lost)], Path("/r"))
    assert "lost" in text
    assert runtext.listing([], Path("/r")) == "no runs in /r"


def test_a_plan_tells_every_process_flag_and_file(tmp_path):
    path = tmp_path / "e.yaml"
    path.write_text(
        changed("iterations: 10", "{iterations: 10, at_most: 30s}") + "repetitions: 2\n"
        "conditions:\n  - rate: {host: h2, rate: 500mbit}\n"
    )
    status, out, _ = orch("plan", str(path))
    assert status == 0
    for said in (
        "experiment t: 2 runs on local hosts",
        "links 1gbit (set up as 100mbit), scale 10, MTU 1500",
        "change: rate of h2:eth0 on h2",
        "job training (ddp), ranks 0..2=h1..h3",
        "theory: ",
        "window w1: 20 iterations of warm-up, then 10 iterations or 30s",
        "traffic iperf0: h1 -> h2 at 200mbit (scaled: 20mbit)",
        "iperf3 -s -B ",
        "tcpdump on h1..h3: tcpdump ",
        "RANK=<rank>",
        "files ",
        "run 1: point ",
        "run 2: point ",
    ):
        assert said in out, said
    status, out, _ = orch("plan", str(path), "--json")
    runs = json.loads(out)["runs"]
    assert [run["repetition"] for run in runs] == [1, 2]
    assert runs[0]["point"] != runs[1]["point"]
    assert runs[0]["seed"] != runs[1]["seed"]
    (demand,) = runs[0]["windows"][0]["sources"][0]["demands"]
    assert (demand["src"], demand["dst"], demand["rate"]) == ("h1", "h2", 200e6)


def test_a_plan_is_the_same_on_any_day(tmp_path):
    path = tmp_path / "e.yaml"
    path.write_text(GOOD)
    assert orch("plan", str(path), "--json") == orch("plan", str(path), "--json")


def test_a_run_tells_whose_containers_its_hosts_were():
    hosts = {**HOSTS, "runtime": "podman", "image": "lab/torch:2"}
    text = runtext.run_text(Entry(Path("/r"), manifest(topology=hosts)))
    assert "testbed   local podman lab/torch:2, scale 10, hosts h1" in text


def test_more_iterations_than_were_asked_for_are_explained():
    """Of a run whose warm-up was chosen from the data: what of it was steady counts."""
    auto = window(training=[training(iterations=70)], wanted_iterations=50, warmup="auto")
    text = runtext.outcomes_text([(Path("/r"), manifest(windows=[auto]))], None)
    assert "  iterations: 50 were asked for; those of the warm-up that were steady already count, too" in text
    for others in ({"warmup": 5}, {"wanted_iterations": None}, {"wanted_iterations": 70}):
        one = window(**{"training": [training(iterations=70)], "wanted_iterations": 50, "warmup": "auto", **others})
        assert "asked for" not in runtext.outcomes_text([(Path("/r"), manifest(windows=[one]))], None)
