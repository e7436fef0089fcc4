"""Texts that confused somebody who knew the README alone: each says now what it means."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from orchestrator.analysis.traffic import view
from orchestrator.cli import capture
from orchestrator.cli.main import main
from orchestrator.experiment import runtext
from orchestrator.report import traffic_section
from orchestrator.report.run import figures, run_tables
from orchestrator.report.runs import load
from orchestrator.report.site import page as site
from orchestrator.store.manifests.records import Variation
from tests.helpers.experiments import orch
from tests.helpers.made_traffic import made
from tests.helpers.night_runs import write_night
from tests.helpers.sealed_run import loose, make_run


def swaps(tmp_path, kernels):
    """What the gate `swap` says of which nodes, the switch having no counters of its own."""

    def change(manifest):
        queues = {
            "name": "qdisc.switch",
            "node": "switch",
            "part": "collector.qdisc",
            "role": "collector",
            "argv": ["tc"],
            "failed": None,
        }
        manifest["launches"].append(queues)
        manifest["clocks"]["switch"] = manifest["clocks"]["h1"]
        manifest["kernels"] = kernels

    path = make_run(tmp_path, iterations=40, tolerances=loose(), change=change)
    (window,) = json.loads((path / "manifest.json").read_text())["windows"]
    return {gate["message"].partition(":")[0]: gate["passed"] for gate in window["gates"] if gate["name"] == "swap"}


HOSTS = ("h1", "h2", "h3", "h4")


def test_a_switch_on_a_kernel_whose_swap_was_counted_raises_no_question(tmp_path):
    one = {"nodes": dict.fromkeys((*HOSTS, "switch"), "k"), "controller": "k"}
    assert swaps(tmp_path, one) == dict.fromkeys(HOSTS, True)


def test_a_switch_of_a_kernel_of_its_own_is_not_known_to_have_swapped(tmp_path):
    own = {"nodes": {**dict.fromkeys(HOSTS, "k"), "switch": "other"}, "controller": "k"}
    assert swaps(tmp_path, own) == {**dict.fromkeys(HOSTS, True), "switch": None}


def test_nights_of_one_day_are_no_span(tmp_path):
    write_night(tmp_path, 0)
    assert ": 1 night begun on 2026-11-" in orch("history", "nightly", "--results", str(tmp_path))[1]
    write_night(tmp_path, 2)
    assert ": 2 nights, 2026-11-" in orch("history", "nightly", "--results", str(tmp_path))[1]


def test_timestamps_that_are_out_of_order_come_with_their_share():
    point = SimpleNamespace(
        name="a.pcap",
        packets=10_000,
        wire_bytes=10**6,
        captured_bytes=10**6,
        link_types=("Ethernet",),
        undecoded=0,
        first_ns=0,
        last_ns=10**9,
        backwards=149,
        undecoded_inner=0,
        interfaces=(),
        tunnels=(),
        unread=(),
        damage=(),
    )
    assert "  149 packets (1.49%) are out of timestamp order" in capture._point_lines(point)


def seen(*, told):
    found = made(told=told)
    return view.look(found if told else view.told_apart(found), ranks={}, logs=[])


def test_kinds_that_are_guessed_are_called_so_in_tables_and_figures():
    guessed = seen(told=False)
    page = traffic_section.section([("", guessed)])
    assert "training (guess)" in page
    assert "cross traffic (guess)" in page
    titles = {name: title for name, title, _, _ in traffic_section.figures(guessed)}
    assert titles.get("shares", "(guess)").endswith("(guess)")
    assert all("Kinds are guesses" in caption for _, _, _, caption in traffic_section.figures(guessed))


def test_kinds_that_a_run_recorded_are_no_guess():
    known = seen(told=True)
    assert "guess" not in traffic_section.section([("", known)])
    assert all("guess" not in title + caption for _, title, _, caption in traffic_section.figures(known))


@pytest.mark.parametrize("options", [[], ["--dry-run"]])
def test_prune_without_a_limit_says_that_none_is_a_default(tmp_path, options):
    status, _, err = orch("prune", *options, "--results", str(tmp_path))
    assert status == 2
    assert err.startswith("orch prune: no limit is given; accepted: at least one of --compress-after, --drop-after")
    assert "none has a default" in err


def test_help_of_prune_shows_no_example_as_a_default(capsys):
    with pytest.raises(SystemExit):
        main(["prune", "--help"])
    out = " ".join(capsys.readouterr().out.split())
    for example in ("2d", "14d", "50gb"):
        assert f"such as {example}" in out
        assert f"({example})" not in out


@pytest.mark.parametrize("workload", ["ptd", "moe"])
def test_a_time_that_must_be_given_comes_with_a_way_to_measure_it(workload):
    fields = json.loads(orch("schema")[1])["$defs"]
    (described,) = [
        config["properties"]["compute_time"]["description"]
        for name, config in fields.items()
        if f"workloads__{workload}" in name or _is_of(config, workload)
    ]
    assert "Measured: train " in described


def _is_of(config, workload):
    own = {"ptd": "microbatches", "moe": "experts"}[workload]
    properties = config.get("properties", {})
    return "compute_time" in properties and own in properties and "compute_time" in config.get("required", [])


def test_a_row_that_is_the_same_shows_no_p_of_a_difference(tmp_path):
    for night in range(4):
        write_night(tmp_path, night)
    _, out, _ = orch("compare", "nightly", "nightly", "--json", "--results", str(tmp_path))
    points = json.loads(out)["points"]
    assert "same" in {point["verdict"] for point in points}
    table = orch("compare", "nightly", "nightly", "--results", str(tmp_path))[1].splitlines()
    (head,) = [line for line in table if line.startswith("point ") and line.endswith("points)")]
    end = len(head)
    same = [line for line in table if "  same  " in line]
    assert len(same) == sum(point["verdict"] == "same" for point in points)
    assert all(line[:end].endswith(" -") for line in same)


def test_a_key_that_is_missing_says_what_it_is_for_and_what_stands_in_it(tmp_path):
    path = tmp_path / "e.yaml"
    path.write_text(
        "name: e\ntestbed: {local: {hosts: 2, link: 1gbit}}\nworkload: {command: {argv: [x], hosts: [h1]}}\n"
    )
    err = orch("plan", str(path))[2]
    assert "measure: missing (when a window ends, such as {iterations: 100}); accepted: a mapping of warmup, " in err


def test_the_option_that_runs_here_says_that_it_runs(capsys):
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    out = " ".join(capsys.readouterr().out.split())
    assert "a real run" in out
    assert "what runs nothing is `orch plan`" in out


def test_a_change_that_would_have_been_found_is_called_detectable(tmp_path):
    for night in range(4):
        write_night(tmp_path, night)
    page = tmp_path / "verdict.html"
    out = orch("compare", "nightly", "nightly", "--html", str(page), "--results", str(tmp_path))[1]
    assert "table" in out.splitlines()[next(at for at, line in enumerate(out.splitlines()) if "detec-" in line) + 1]
    assert ">detectable</th>" in page.read_text()
    assert '"Detectable": the smallest' in page.read_text()


def test_a_window_in_a_run_of_its_own_and_intervals_within_a_run_are_told_in_full(tmp_path):
    write_night(tmp_path, 0, repetitions=1, rechecked=("load8",))
    (run,) = site.data_of_store(tmp_path)["runs"]
    labels = [window[0] for window in run[site.RUN.index("windows")]]
    assert labels[1] == "load8, measured once more in a run of its own"
    text = site.text(site.data_of_store(tmp_path))
    assert "they do not tell where the level of another run would lie" in text
    assert "they do not say" not in text


def test_too_few_nights_are_not_called_no_step():
    """What stands above the points of a history agrees with what stands below each."""
    script = site.text(site.data_of_store(Path(__file__).parents[2] / "data" / "store"))
    assert "no step in any of them" not in script
    assert "with too few nights to tell" in script


@pytest.mark.parametrize("theory", [True, False])
def test_columns_and_legends_that_have_nothing_are_absent(tmp_path, theory):
    """A `command` has no passes, no orders of communications and no theory."""

    def nothing(manifest):
        if not theory:
            manifest["jobs"][0].update(workload="command", model=None, compute=None, theory=None)

    run = make_run(tmp_path, tolerances=loose(), iterations=40, change=nothing, skip=("counters", "sockets"))
    rows = [{"straggler_share": math.nan, "overlapped": math.nan, "efficiency": math.nan, "orders": 0}]
    if theory:
        rows = [{"straggler_share": 0.1, "overlapped": 0.5, "efficiency": 0.9, "orders": 3}]
    times = dict.fromkeys(("mean_s", "p50_s", "p95_s", "p99_s", "max_s"), 0.2)
    rows = [
        {"window_name": "w1", "job": "training", "rank": -1, "iterations": 40, "cv": 0.1, **times, **row}
        for row in rows
    ]
    (read,) = load([run])
    read.rows = lambda name, of=read.rows: rows if name == "variation" else of(name)
    table = run_tables.variation([read])
    names = list(table.columns)
    assert (names[-4:] == ["straggler share", "overlapped", "efficiency", "orders"]) is theory
    assert ("Straggler share" in table.caption, "Orders" in table.caption) == (theory, theory)
    drawing, caption = figures.draw([read], "bytes")
    legends = [
        text.get_text() for panel in drawing.axes if panel.get_legend() for text in panel.get_legend().get_texts()
    ]
    assert legends == (["theory", "measured"] if theory else [])
    assert ("theory" in caption) is theory


def test_orch_show_has_no_column_of_dashes(tmp_path):
    found = Variation(
        job="training",
        rank=-1,
        iterations=40,
        cv=0.1,
        p50_s=0.2,
        p95_s=0.2,
        p99_s=0.2,
        max_s=0.2,
        straggler_share=None,
        efficiency=None,
        overlapped=None,
        orders=0,
    )
    window = SimpleNamespace(name="w1", variation=[found])
    lines = "\n".join(runtext._variation([window], verbose=False, width=None))
    assert "cv" in lines
    assert not [word for word in ("gler", "lapped", "ciency", "orders", "straggler", "TicTac") if word in lines]
    told = replace(found, straggler_share=0.1)
    lines = "\n".join(runtext._variation([SimpleNamespace(name="w1", variation=[told])], verbose=False, width=None))
    assert "straggler: share" in lines
    assert "overlapped" not in lines
