from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
import yaml

from orchestrator.analysis.compare import comparing, point_histories, repeated_draws, selection
from orchestrator.analysis.compare.regression import Rule
from orchestrator.cli import compare
from orchestrator.cli.main import main
from orchestrator.core.errors import ConfigError, StoreError
from orchestrator.report import compare_page, comparison_texts
from orchestrator.store import rundir
from orchestrator.store.stores import Here
from orchestrator.store.tabular.tables import TableWriter
from orchestrator.sweep import sweeptext
from tests.helpers.night_runs import sweep_id, write_night, write_run


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Ten nights, the last two with their first point 12 % slower, and a baseline of the first three."""
    results = tmp_path_factory.mktemp("store")
    for night in range(10):
        write_night(results, night, slower=1.12 if night >= 8 else 1.0, commit="slower" if night >= 8 else "first")
    days = [f"nightly@2026-11-{18 + night}" for night in range(3)]
    selection.set_baseline(results, "main", days)
    return results


def orch(capsys, *argv):
    status = main([str(word) for word in argv])
    told = capsys.readouterr()
    return status, told.out + told.err


def test_a_planted_regression_ends_with_its_status_and_says_which_point_by_how_much(store, capsys):
    status, out = orch(capsys, "compare", "main", "nightly", "--results", store)
    assert status == 4
    assert "worse: load 0gbit: mean +" in out
    assert any(line.split()[:3] == ["load", "8gbit", "same"] for line in out.splitlines())
    assert "commit: first against slower" in out


def test_equal_nights_end_well(store, capsys):
    status, out = orch(capsys, "compare", "main", "nightly@2026-11-22", "--results", store)
    assert status == 0, out
    assert "2 same (of 2 points)" in out
    assert "judged by nights (3 against 1): of equal nights one night in 365 at most is called worse" in out
    promise = next(line for line in out.splitlines() if line.startswith("wrong alarms a year (2 points"))
    half, most, nearly_all = (float(number) for number in re.findall(r"(?:: |up to )([0-9.]+) after", promise))
    assert half < most < nearly_all, "a distribution over baselines"
    assert most < 1.3
    same = next(line for line in out.splitlines() if line.startswith("load 8gbit"))
    assert 0.5 < float(same.split("%")[2].split()[0]) < 15, "what would have been found stands beside it"


def test_a_screen_of_80_columns_holds_the_tables_and_every_dash_has_a_reason(store, tmp_path):
    few = [write_run(tmp_path, repetition=number, seed=number, iterations=60) for number in (1, 2)]
    short = comparing.compare(tmp_path, *(path.name for path in few), rule=Rule())
    text = comparison_texts.text(short, width=80)
    assert "  - no p99, since a side lacks runs of at least 100 iterations: load 0gbit, load 8gbit" in text
    assert "  - runs differ by -: one run does not say by how much runs differ" in text
    whole = comparing.compare(store, "main", "nightly", rule=Rule())
    assert "What a dash stands for" not in comparison_texts.text(whole, width=80)
    long = dataclasses.replace(whole, labels={key: f"{label}, {'x' * 60}" for key, label in whole.labels.items()})
    for found in (short, whole, long):
        tables = comparison_texts.text(found, width=80).split("\n\n")[1:3]
        assert max(len(line) for table in tables for line in table.splitlines()) <= 80
    assert f"load 0gbit, {'x' * 60}\n" in comparison_texts.text(long, width=80)


def test_runs_differ_by_what_is_between_them_and_by_what_is_within(store):
    found = comparing.compare(store, "main", "nightly", rule=Rule())
    for change in found.changes:
        for level, runs in zip(found.levels[change.point], change.runs, strict=True):
            assert level.runs == runs
            assert 0 < level.between < 0.02
            assert 0 < level.within < 1
    (row,) = (comparison_texts.row(found, change) for change in found.changes if change.verdict == "worse")
    (level, _) = found.levels[next(change.point for change in found.changes if change.verdict == "worse")]
    assert row[-2].startswith(f"{100 * level.between:.2f} %, ")
    assert row[-1].startswith(f"{100 * level.within:.0f} %, ")


def test_the_history_tells_the_night_of_the_step(store, capsys, tmp_path):
    for night in range(10, 13):
        write_night(tmp_path, night, slower=1.12)
    for night in range(8):
        write_night(tmp_path, night)
    status, out = orch(capsys, "history", "nightly", "--results", tmp_path)
    assert status == 0
    for statistic in ("mean", "p50", "p99"):
        assert f"load 0gbit: since 2026-11-28 {statistic} +" in out
    assert "the same in mean, median and tail, later nights against earlier ones: load 8gbit\n" in out
    status, out = orch(capsys, "history", "nightly", "--results", tmp_path, "--json")
    assert [len(one["steps"]) for one in json.loads(out)] == [3, 0]
    assert [(one["verdict"], one["why"]) for one in json.loads(out)] == [
        ("worse", "p99 since 2026-11-28"),
        ("same", "mean and median within 2% with confidence"),
    ]
    found = comparing.compare(tmp_path, "nightly@2026-11-18", "nightly", rule=Rule())
    (nights,) = [table for table in compare_page.tables_beside_points(found) if table.title == "Nights"]
    ((point, night, _, step),) = [texts for row in nights.rows if (texts := list(row))[3]]
    assert (point, night) == ("load 0gbit", "2026-11-28")
    assert re.fullmatch(r"mean \+1\d\.\d %, p50 \+1\d\.\d %, p99 \+1\d\.\d %", step)


def stalled_night(results, night, *, every, factor=1.6, repetitions=3, iterations=200):
    """A night whose iterations last `factor` times as long, each with the chance of one in `every`."""
    for repetition in range(1, repetitions + 1):
        random = np.random.default_rng(100 * night + repetition)
        took = 0.16 * np.exp(random.normal(0, 0.004) + random.normal(0, 0.01, 3 + iterations))
        took[random.random(len(took)) < 1 / every] *= factor
        write_run(results, night=night, repetition=repetition, recorded={"load0": took})


@pytest.mark.parametrize(
    ("before", "after", "statistics"),
    [((33, 2.0), (6, 2.0), {"mean"}), ((1000, 1.3), (40, 1.3), {"p99"})],
    ids=["every sixth iteration twice as long where it was every 33rd", "a longer tail alone"],
)
def test_the_history_tells_a_step_that_the_median_does_not_show(tmp_path, capsys, before, after, statistics):
    for night in range(12):
        every, factor = after if night >= 7 else before
        stalled_night(tmp_path, night, every=every, factor=factor)
    _, out = orch(capsys, "history", "nightly", "--results", tmp_path, "--json")
    (one,) = json.loads(out)
    assert one["verdict"] == "worse"
    assert {step["statistic"] for step in one["steps"]} >= statistics
    assert {one["days"][step["night"]] for step in one["steps"]} == {"2026-11-25"}
    assert "p50" not in {step["statistic"] for step in one["steps"]}


def test_a_history_whose_mean_is_not_known_well_enough_is_not_called_the_same(tmp_path, capsys):
    """The median stays within a fraction of a percent, and stalls of some nights move the mean by several."""
    for night in range(12):
        stalled_night(tmp_path, night, every=8 if night % 3 == 0 else 60, factor=2.0)
    _, out = orch(capsys, "history", "nightly", "--results", tmp_path)
    assert "the same in" not in out
    assert "load 0gbit: cannot tell: mean: " in out


def test_files_hold_the_same_verdicts(store, capsys, tmp_path):
    files = {kind: tmp_path / "deep" / f"verdict.{kind}" for kind in ("html", "markdown", "junit")}
    status, out = orch(
        capsys,
        "compare",
        "main",
        "nightly",
        "--results",
        store,
        "--json",
        *(word for kind, path in files.items() for word in (f"--{kind}", path)),
    )
    assert status == 4
    data = json.loads(out)
    assert [point["verdict"] for point in data["points"]] == ["worse", "same"]
    suite = ET.fromstring(files["junit"].read_text())  # noqa: S314
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    assert suite.find("testcase/failure").get("message").startswith("mean +")
    assert "WORSE: 1 of 2 points" in files["markdown"].read_text()
    assert "\n- worse: load 0gbit: mean +" in files["markdown"].read_text()
    page = files["html"].read_text()
    assert "load 0gbit" in page
    assert page.count("<svg") == 2
    assert (files["html"].with_name("verdict-figures") / "history-1.pdf").exists()
    titles = ("What either side measured", "Nights", "Runs")
    assert [page.count(f"<summary><h2>{title}</h2>") for title in titles] == [1, 1, 1]
    assert "Nights: 20 rows" not in page  # as many as stand unfolded
    level = data["points"][0]["levels"][1]["estimate"]
    value, low, high = (f"{1e3 * level[end]:,.1f}" for end in ("value", "low", "high"))
    assert f'<td class="n">{value}</td><td class="n">{low} to {high}</td>' in page
    assert re.search(r'<td>load 0gbit</td><td>2026-11-26</td><td class="n">[\d.]+</td></tr>', page)
    assert all(f"<td>{run}</td>" in page for run in data["a"]["runs"] + data["b"]["runs"])


def test_invalid_windows_never_count_and_are_told(tmp_path, capsys):
    for night in range(5):
        write_night(tmp_path, night)
    selection.set_baseline(tmp_path, "main", [f"nightly@2026-11-{18 + night}" for night in range(5)])
    for repetition in (1, 2, 3):
        write_run(tmp_path, night=6, repetition=repetition, seconds={"load0": 0.4, "load8": 0.2}, invalid=("load0",))
    status, out = orch(capsys, "compare", "main", "nightly", "--results", tmp_path)
    assert status == 0
    assert "nothing valid was measured here on one side" in out
    assert "cross traffic missed the request" in out
    assert "worse" not in out.splitlines()[0]


def test_when_nothing_can_be_told_the_status_says_so(tmp_path, capsys):
    a = write_run(tmp_path, name="one", sweep=False, seconds={"w1": 0.1})
    b = write_run(tmp_path, name="two", sweep=False, seconds={"w1": 0.2}, seed=1)
    page, junit = tmp_path / "verdict.html", tmp_path / "verdict.xml"
    status, out = orch(capsys, "compare", a, b, "--results", tmp_path, "--html", page, "--junit", junit)
    assert status == 3, "one run a side never counts as worse"
    assert "one run a side: the spread between runs is not known" in out
    assert "(interval unknown)" in junit.read_text()
    words = re.sub(r"<script.*?</script>", "", page.read_text(), flags=re.DOTALL)
    assert "nan" not in (out + words).lower().split()


def test_a_repetition_measured_again_counts_once_and_checks_do_not(tmp_path):
    write_run(tmp_path, repetition=1, seed=1)
    write_run(tmp_path, repetition=2, seed=2, rechecked=("load8",))
    again = write_run(tmp_path, repetition=3, seed=3)
    manifest = json.loads((again / "manifest.json").read_text())
    for point in manifest["sweep"]["points"].values():
        point["repetition"] = 1
    (again / "manifest.json").write_text(json.dumps(manifest))
    chosen = selection.choose(tmp_path, "nightly")
    runs = {key: [one.run for one in found] for key, found in chosen.points.items()}
    assert [len(found) for found in runs.values()] == [2, 1]
    assert all(again.name in found for found in runs.values())


def test_names(store):
    newest = selection.choose(store, "nightly")
    assert newest.began_ns == max(night.began_ns for night in point_histories.nights(Here(store), "nightly"))
    run = newest.entries[0].run
    assert [entry.run for entry in selection.choose(store, run).entries] == [run]
    assert len(selection.choose(store, "nightly@2026-11-18,nightly@2026-11-19").entries) == 6
    assert len(selection.choose(store, sweep_id(3)).entries) == 3
    assert len(selection.choose(store, "main").entries) == 9


@pytest.mark.parametrize(
    ("wanted", "error", "told"),
    [
        ("nightly@2020-01-01", StoreError, "it has 2026-11-23"),
        ("nightly@yesterday", ConfigError, "accepted: YYYY-MM-DD"),
        ("nothing@2026-11-18", StoreError, "no sweep or experiment"),
        ("nothing", StoreError, "no such run"),
        ("", StoreError, "names no run"),
        (",", StoreError, "names no run"),
    ],
)
def test_a_name_of_nothing_is_told(store, wanted, error, told):
    with pytest.raises(error, match=told):
        selection.choose(store, wanted)


def test_sides_without_a_common_point_are_refused(tmp_path, capsys):
    a = write_run(tmp_path, name="one", sweep=False, seconds={"w1": 0.1})
    b = write_run(tmp_path, name="two", sweep=False, seconds={"w2": 0.1})
    status, out = orch(capsys, "compare", a, b, "--results", tmp_path)
    assert status == 2
    assert "no validly measured point in common: w1 against w2" in out


def test_baselines_are_kept_listed_and_missed(store, tmp_path, capsys):
    write_night(tmp_path, 0)
    status, out = orch(capsys, "baseline", "set", "good", "nightly", "--results", tmp_path)
    assert (status, "2 points from 3 runs" in out) == (0, True)
    assert "good" in orch(capsys, "baseline", "ls", "--results", tmp_path)[1]
    (tmp_path / "nightly").rename(tmp_path / "moved")
    status, out = orch(capsys, "compare", "good", "good", "--results", tmp_path)
    assert status == 1
    assert "3 of its runs are gone" in out


@pytest.mark.parametrize("text", ["{", "[]", '{"name": "main"}'])
def test_a_torn_baseline_is_told(tmp_path, text, capsys):
    write_night(tmp_path, 0)
    (tmp_path / "baselines").mkdir()
    (tmp_path / "baselines" / "main.json").write_text(text)
    status, out = orch(capsys, "compare", "main", "nightly", "--results", tmp_path)
    assert status == 1
    assert "is no baseline" in out


def test_a_run_that_is_not_sealed_is_not_compared(tmp_path, capsys):
    whole = write_run(tmp_path, sweep=False, repetition=1)
    under_way = write_run(tmp_path, sweep=False, repetition=2)
    under_way = under_way.rename(under_way.with_name(under_way.name + ".partial"))
    status, out = orch(capsys, "compare", whole, under_way, "--results", tmp_path)
    assert status == 1
    assert "is not sealed" in out


@pytest.mark.parametrize("name", ["../evil", "a b", "", ".hidden", "a/b"])
def test_a_baseline_cannot_be_named_so(store, name):
    with pytest.raises(ConfigError, match="cannot name a baseline"):
        selection.set_baseline(store, name, ["nightly"])


@pytest.mark.parametrize("text", ["0%", "200%", "5", "many"])
def test_a_share_that_is_none_is_refused(store, capsys, text):
    status, out = orch(capsys, "compare", "main", "nightly", "--results", store, "--margin", text)
    assert status == 2
    assert "--margin" in out


def test_points_come_in_the_order_of_their_loads(tmp_path):
    levels = {f"load{load}": 0.2 for load in (16, 0, 8, 12.5)}
    chosen = selection.of_entries([rundir.entry_at(write_run(tmp_path, seconds=levels))], name="n")
    found, labels = selection.pairs(chosen, chosen)
    assert [labels[one.point] for one in found] == ["load 0gbit", "load 8gbit", "load 12.5gbit", "load 16gbit"]


def test_a_night_that_goes_on_after_midnight_is_one_night(tmp_path):
    write_run(tmp_path, night=0)
    late = write_run(tmp_path, night=1)
    manifest = json.loads((late / "manifest.json").read_text())
    manifest["sweep"]["id"] = sweep_id(0)
    manifest["sweep"]["points"]["load0"]["repetition"] = manifest["sweep"]["points"]["load8"]["repetition"] = 2
    (late / "manifest.json").write_text(json.dumps(manifest))
    assert len(selection.choose(tmp_path, "nightly@2026-11-18").entries) == 2
    assert len(point_histories.nights(Here(tmp_path), "nightly")) == 1


def judged(results, *, night, status=0):
    parser = argparse.ArgumentParser()
    compare.add_rule(parser)
    folder = results / "sweeps" / "nightly" / sweep_id(night)
    found = compare.judge_sweep(
        results,
        "main",
        sweep_id(night),
        rule=compare.rule_of(parser.parse_args([])),
        folder=folder,
        status=status,
        out=sys.stdout,
    )
    return found, folder


@pytest.mark.parametrize(("night", "status", "ends"), [(9, 0, 4), (9, 3, 4), (4, 0, 0), (4, 3, 3)])
def test_a_sweep_is_judged_against_its_baseline(store, capsys, night, status, ends):
    found, folder = judged(store, night=night, status=status)
    assert found == ends
    assert {path.name for path in folder.iterdir()} == {
        "verdict.html",
        "verdict-figures",
        "summary.md",
        "junit.xml",
        "verdict.json",
    }
    assert json.loads((folder / "verdict.json").read_text())["status"] == (4 if night == 9 else 0)
    assert capsys.readouterr().out.splitlines()[0] == (folder / "summary.md").read_text().splitlines()[2]


def test_a_night_without_its_baseline_is_refused_before_it_is_measured(tmp_path):
    with pytest.raises(StoreError, match="no baseline 'main'"):
        compare.require_baseline(tmp_path, "main")


# Settings


def write_ab(results, *, faster=1.05, drift=0.2):
    """A sweep over two congestion controls and two loads, measured in turn on a machine that drifts."""
    for repetition in range(1, 7):
        level = 0.16 * (1 + drift * repetition)
        windows = {"a0": level, "b0": level / faster, "a8": 1.2 * level, "b8": 1.2 * level}
        run = write_run(results, repetition=repetition, seconds=windows, spread=0.0)
        manifest = json.loads((run / "manifest.json").read_text())
        for name, point in manifest["sweep"]["points"].items():
            control = {"a": "cubic", "b": "bbr"}[name[0]]
            point["values"] = {"conditions.0.congestion-control.algorithm": control, "traffic.0.iperf.load": name[1]}
        (run / "manifest.json").write_text(json.dumps(manifest))


def test_two_values_of_an_axis_are_compared_in_pairs(tmp_path, capsys):
    write_ab(tmp_path)
    status, out = orch(capsys, "compare", "nightly", "--by", "algorithm=cubic,bbr", "--results", tmp_path)
    assert status == 0, out
    assert "nightly with algorithm bbr against nightly with algorithm cubic: 1 better, 1 same (of 2 points)" in out
    assert "judged by pairs that were measured in turn" in out
    assert "better: load 0: mean -4." in out


@pytest.mark.parametrize(
    ("by", "told"),
    [
        ("algorithm=cubic,reno", "two values are compared; accepted: two of cubic, bbr"),
        ("model", "names no axes of nightly"),
    ],
)
def test_an_axis_that_cannot_be_compared_is_refused(tmp_path, capsys, by, told):
    write_ab(tmp_path)
    status, out = orch(capsys, "compare", "nightly", "--by", by, "--results", tmp_path)
    assert (status, told in out) == (2, True), out


@pytest.mark.parametrize("more", [[], ["nightly", "--by", "load"]])
def test_one_thing_is_compared_with_a(tmp_path, capsys, more):
    status, out = orch(capsys, "compare", "nightly", *more, "--results", tmp_path)
    assert (status, "accepted: B, or --by AXIS" in out) == (2, True)


def test_runs_that_were_set_differently_are_no_regression(tmp_path, capsys):
    for repetition in (1, 2, 3):
        write_run(tmp_path, name="resnet", sweep=False, repetition=repetition, seconds={"w1": 0.1})
        write_run(
            tmp_path,
            name="gpt",
            sweep=False,
            repetition=repetition,
            seconds={"w1": 0.5},
            also={"workload": {"ptd": {"model": "gpt-3b"}}},
        )
    status, out = orch(capsys, "compare", "resnet", "gpt", "--results", tmp_path)
    assert status == 2
    assert "set differently: w1: workload.ddp.model resnet50 against not set" in out
    status, out = orch(capsys, "compare", "resnet", "gpt", "--settings", "--results", tmp_path)
    assert status == 4
    assert "set differently: w1: workload.ddp.model resnet50 against not set" in out.splitlines()[1]


def with_schedule(path, *, largest_bytes, height):
    """Leave what a generator was to send in a run; returns it."""
    with TableWriter(path / "tables", run=path.name) as writer:
        writer.add(
            "schedules",
            {
                "source": ["websearch0"],
                "window_name": ["w1"],
                "dst": ["10.0.0.1"],
                "zero_ns": [0],
                "load_bps": [1e6],
                "flow_bytes": [0],
                "arrivals": ["poisson"],
                "largest_bytes": [largest_bytes],
                "burst_width_s": [height],
                "burst_period_s": [height],
                "burst_height": [height],
            },
            node="h1",
            launch="sender",
        )
    return path


@pytest.mark.parametrize(("heights", "said"), [((None, 3.0), True), ((3.0, None), True), ((3.0, 2.0), False)])
def test_settings_with_and_without_bursts_differ_in_the_sizes_of_flows_too(tmp_path, capsys, heights, said):
    for name, height in zip(("steady", "other"), heights, strict=True):
        also = {"traffic": [{"websearch": {"burst": {"height": height}} if height else {}}]}
        for number in (1, 2):
            run = write_run(
                tmp_path, name=name, sweep=False, repetition=number, seed=number, seconds={"w1": 0.1}, also=also
            )
            experiment = yaml.safe_load((run / "experiment.yaml").read_text())
            del experiment["windows"]
            (run / "experiment.yaml").write_text(yaml.safe_dump(experiment))
            with_schedule(run, largest_bytes=68_000 if height else 300_000, height=height)
    _, out = orch(capsys, "compare", "steady", "other", "--settings", "--results", tmp_path)
    name = "other" if heights[0] is None else "steady"
    told = f"a period of the bursts of {name} holds none larger than 6.8 MB, the other side has up to 30 MB"
    assert (told in out) == said, out


def test_only_points_that_were_set_alike_are_compared(tmp_path, capsys):
    for night in range(6):
        write_night(tmp_path, night)
    for path in tmp_path.glob("nightly/*/experiment.yaml"):
        if json.loads(path.with_name("manifest.json").read_text())["sweep"]["id"] == sweep_id(5):
            path.write_text(
                path.read_text().replace(
                    "- name: load0", "- name: load0\n  traffic: [{iperf: {streams: 2, mtu: 9000}}]"
                )
            )
    selection.set_baseline(tmp_path, "main", [f"nightly@2026-11-{18 + night}" for night in range(5)])
    status, out = orch(capsys, "compare", "main", "nightly", "--results", tmp_path)
    assert status == 0, out
    assert "not compared: load 0gbit: traffic.0.iperf.mtu not set against 9000" in out
    assert "1 same (of 1 points)" in out


# Power


def test_a_plan_says_what_finds_a_change_by_the_nights_of_the_store_or_an_assumption(tmp_path, store, capsys):
    experiment = Path(__file__).parents[3] / "playbooks/experiments/quickstart.yaml"
    sweep = tmp_path / "sweep.yaml"
    sweep.write_text(f"name: nightly\nexperiment: {experiment}\naxes:\n  measure.iterations: {{values: [50, 60]}}\n")
    for results, source in ((store, "as 10 nights show at load "), (tmp_path, "which is assumed")):
        status, out = orch(capsys, "plan", sweep, "--detect", "30%", "--results", results, "--local")
        assert status == 0, out
        assert "to find a change of 30 % of the mean at all 2 points in 95 of 100 cases, in two nights:\n  " in out
        assert source in out


def test_a_plan_of_an_experiment_counts_its_days_as_nights(tmp_path, capsys):
    original = (Path(__file__).parents[3] / "playbooks/experiments/quickstart.yaml").read_text()
    experiment = tmp_path / "daily.yaml"
    experiment.write_text(re.sub(r"^name: .*", "name: daily", original, flags=re.MULTILINE))
    plan = ("plan", experiment, "--detect", "30%", "--local", "--results")
    status, out = orch(capsys, *plan, tmp_path / "empty")
    assert status == 0, out
    assert "which is assumed" in out
    assert "how long a night takes is not known" in out
    for night in range(4):
        for repetition in (1, 2):
            path = write_run(tmp_path, name="daily", night=night, repetition=repetition, sweep=False)
            manifest = json.loads((path / "manifest.json").read_text())
            (path / "manifest.json").write_text(json.dumps({**manifest, "phases": {"total": 90.0}}))
    status, out = orch(capsys, *plan, tmp_path)
    assert status == 0, out
    assert "as 4 nights show at " in out
    runs = int(re.search(r"and (\d+) repetitions a night", out)[1])
    assert f"about {sweeptext.time_text(90.0 * runs)} a night" in out
    status, out = orch(capsys, *plan, tmp_path, "--json")
    assert json.loads(out[: out.index("\nto find")])["runs"], "the plan alone is on standard output"


@pytest.mark.parametrize("share", [0.3, 1.0])
@pytest.mark.parametrize(
    "command",
    [
        ["compare", "nightly@2026-11-18", "nightly@2026-11-19"],
        ["history", "nightly"],
        ["compare", "nightly", "--by", "traffic.0.iperf.load=0gbit,8gbit"],
        ["report", "nightly"],
    ],
)
def test_times_that_a_training_rounded_to_nothing_are_in_no_verdict(tmp_path, capsys, share, command):
    """A store of before such iterations were passed over, or of others."""
    random = np.random.default_rng(1)
    for night in range(2):
        for repetition in (1, 2):
            took = np.where(random.random(60) < share, 0.0, 0.1)
            write_run(tmp_path / "r", night=night, repetition=repetition, recorded={"load0": took, "load8": took})
    words = ["-o", str(tmp_path / "page.html")] if command[0] == "report" else []
    assert main([*command, *words, "--results", str(tmp_path / "r")]) in (0, 1, 3)
    assert "Traceback" not in capsys.readouterr().err


def test_a_fixed_baseline_says_how_old_it_is(store, tmp_path, capsys):
    told = "main is 7 days older than nightly, with 6 nights measured between"
    page = tmp_path / "verdict.html"
    status, out = orch(capsys, "compare", "main", "nightly", "--results", store, "--html", page)
    assert status == 4
    assert told in out
    assert told in page.read_text()
    found = comparing.compare(store, "main", "nightly", rule=Rule())
    data = comparison_texts.data(found)["age"]
    assert (round(data["days"]), data["nights_between"]) == (7, 6)
    assert told in comparison_texts.markdown(found)
    next_night = comparing.compare(store, "main", "nightly@2026-11-21", rule=Rule())
    assert comparing.age_text(next_night).endswith(
        "is 1 day older than nightly@2026-11-21, with 0 nights measured between"
    )
    assert comparing.compare(store, "nightly", "main", rule=Rule()).age is None


def salted(results, *, seeds, salt="s", night=0):
    """Runs of an experiment of these seeds."""
    paths = []
    for repetition, seed in enumerate(seeds, 1):
        path = write_run(results, night=night, repetition=repetition, sweep=False) / "manifest.json"
        manifest = json.loads(path.read_text())
        path.write_text(json.dumps({**manifest, "salt": salt, "seed": seed}))
        paths.append(path.parent)
    return paths


def test_runs_of_one_seed_are_told_where_they_are_pooled(tmp_path, capsys):
    first = salted(tmp_path, seeds=(1, 2, 1))
    salted(tmp_path, seeds=(3, 4, 5), night=1)
    told = f"drawn alike, by one `--seed` or by runs older than salts: {first[0].name}, {first[2].name}; their random"
    _, out = orch(capsys, "compare", "nightly@2026-11-18", "nightly", "--results", tmp_path)
    assert f"No independent repetitions:\n  - nightly@2026-11-18: {told}" in out
    _, out = orch(capsys, "history", "nightly", "--results", tmp_path)
    assert out.count(f"warning: {told}") == 1
    found = comparing.compare(tmp_path, "nightly", "nightly@2026-11-18", rule=Rule())
    (line,) = comparison_texts.data(found)["drawn_alike"]
    assert line.startswith(f"nightly@2026-11-18: {told}")


def test_runs_of_other_salts_or_seeds_and_sides_that_draw_alike_are_well(tmp_path, capsys):
    salted(tmp_path, seeds=(1, 2, 3), salt="s")
    salted(tmp_path, seeds=(1, 2, 3), salt="s", night=1)  # drawn as the first night: not pooled with it
    found = comparing.compare(tmp_path, "nightly@2026-11-18", "nightly", rule=Rule())
    assert found.drawn_alike == ()
    _, out = orch(capsys, "history", "nightly", "--results", tmp_path)
    assert out.count("warning: drawn alike") == 1, "a history pools its nights"


def test_of_many_runs_drawn_alike_not_all_are_named(tmp_path):
    salted(tmp_path, seeds=[1] * 12)
    salted(tmp_path, seeds=[2, 2], night=1)
    (line,) = repeated_draws.lines(rundir.entry_at(path) for path in (tmp_path / "nightly").iterdir())
    assert " and 4 more; and 1 such groups more; their" in line
