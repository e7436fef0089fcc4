"""`orch figure`: what may be in one figure, the points and intervals of it, and the tables that carry them."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest
import yaml

from orchestrator.analysis.compare import selection
from orchestrator.analysis.stats.levels import level
from orchestrator.cli.main import main
from orchestrator.core import where
from orchestrator.core.errors import ConfigError
from orchestrator.report.figure import curves, drawing, flow_times
from orchestrator.store.manifests import manifest as records
from orchestrator.store.tabular.tables import TableWriter
from tests.helpers.night_runs import write_run
from tests.helpers.sealed_run import BEGAN_NS, loose, make_run

TIME = curves.quantity_named("iteration-time")


def run_with(
    results: Path, repetition: int, *, seconds: float = 0.2, load_bps: float = 80e6, batch: int = 64, **more
) -> Path:
    """A sealed run with the experiment file that it would have had."""
    path = make_run(
        results / "e", repetition=repetition, seconds=seconds, load_bps=load_bps, tolerances=loose(), **more
    )
    experiment = {
        "workload": {"ddp": {"model": "resnet50", "batch": batch}},
        "testbed": {"local": {"link": "25gbit"}},
        "traffic": [{"iperf": {"from": "h2", "to": "h1", "load": f"{load_bps / 1e7:g}gbit"}}] if load_bps else [],
    }
    (path / "experiment.yaml").write_text(yaml.safe_dump(experiment))
    return path


def chosen(results: Path) -> selection.Chosen:
    return selection.choose(results, "e")


def test_points_are_runs_levels_over_the_load_they_were_asked_for(tmp_path):
    for repetition, (load, seconds) in enumerate(
        [(0, 0.2), (0, 0.21), (80e6, 0.3), (80e6, 0.31), (80e6, 0.32)], start=1
    ):
        run_with(tmp_path, repetition, load_bps=load, seconds=seconds)
    found = curves.figure(chosen(tmp_path), TIME, over="load")
    (curve,) = found.curves
    assert [(point.at, point.level.runs) for point in curve.points] == [(0.0, 2), (8.0, 3)]
    assert (found.unit, found.common.scales) == ("Gbit/s", (100,))
    medians = [
        records.load(path / "manifest.json").windows[0].training[0].p50_s * 1e3
        for path in sorted((tmp_path / "e").iterdir())[2:]
    ]
    point = curve.points[1].level.estimate
    assert point.value == pytest.approx(math.exp(np.mean(np.log(medians))))
    half = 4.302652729911275 * np.std(np.log(medians), ddof=1) / math.sqrt(3)  # Student's t, two degrees of freedom
    assert point.high / point.value == pytest.approx(math.exp(half))
    assert curve.points[1].iterations == 3 * 120


def test_what_was_set_differently_is_refused_and_named(tmp_path):
    run_with(tmp_path, 1, batch=32)
    run_with(tmp_path, 2, batch=64)
    with pytest.raises(ConfigError, match=r"differ in workload\.ddp\.batch \(.*--series workload\.ddp\.batch") as told:
        curves.figure(chosen(tmp_path), TIME, over="load")
    assert "32 in 1" in told.value.message
    found = curves.figure(chosen(tmp_path), TIME, over="load", series="batch")
    assert [curve.label for curve in found.curves] == ["32", "64"]
    alone = curves.figure(chosen(tmp_path), TIME, over="load", conditions=where.parse(["batch=32"]))
    assert dict(alone.common.conditions)["workload.ddp.batch"] == "32"


def test_a_curve_for_each_kind_of_traffic_shares_what_was_measured_without(tmp_path):
    run_with(tmp_path, 1, load_bps=0)
    run_with(tmp_path, 2)
    other = run_with(tmp_path, 3)
    experiment = yaml.safe_load((other / "experiment.yaml").read_text())
    experiment["traffic"] = [{"websearch": {"from": "h3", "to": "h1", "load": "8gbit", "burst": {"height": 3}}}]
    (other / "experiment.yaml").write_text(yaml.safe_dump(experiment))
    with pytest.raises(ConfigError, match=r"differ in traffic \(iperf in 1, websearch-burst in 1\)"):
        curves.figure(chosen(tmp_path), TIME, over="load")
    found = curves.figure(chosen(tmp_path), TIME, over="load", series="traffic")
    assert [(curve.label, [point.at for point in curve.points]) for curve in found.curves] == [
        ("iperf", [0.0, 8.0]),
        ("websearch-burst", [0.0, 8.0]),
    ]


def test_another_axis_than_load_refuses_to_mix_loads(tmp_path):
    run_with(tmp_path, 1, batch=32, load_bps=0)
    run_with(tmp_path, 2, batch=64, load_bps=80e6)
    with pytest.raises(ConfigError, match="differ in load"):
        curves.figure(chosen(tmp_path), TIME, over="batch")


def of_sweep(results, repetition, batch, *, sweep="s", more=""):
    """A run whose sweep's axis is a variable that stands for the batch and for a variable of the environment."""

    def swept(manifest):
        point = {"point": f"p{batch}", "values": {"big": batch}, "repetition": repetition, "recheck": False}
        manifest["sweep"] = {"id": f"{sweep}-1", "name": sweep, "definition": sweep, "points": {"w1": point}}

    path = run_with(results, repetition, batch=batch, seconds=batch / 320, change=swept)
    file = path / "experiment.yaml"
    file.write_text(file.read_text() + f"conditions: [{{rate: {{where: nic, rate: {batch}gbit}}}}{more}]\n")
    return path


def test_a_variable_of_a_sweep_is_an_axis_with_all_that_it_stands_for(tmp_path):
    of_sweep(tmp_path, 1, 32)
    of_sweep(tmp_path, 2, 64)
    found = curves.figure(chosen(tmp_path), TIME, over="big")
    assert [(point.text, point.at) for point in found.curves[0].points] == [("32", 32.0), ("64", 64.0)]
    with pytest.raises(ConfigError, match="differ in conditions"):
        curves.figure(chosen(tmp_path), TIME, over="batch")
    assert len(curves.figure(chosen(tmp_path), TIME, over="batch", conditions=where.parse(["big=32"])).common.runs) == 1
    of_sweep(tmp_path, 3, 64, more=", {congestion-control: cubic}")
    with pytest.raises(ConfigError, match=r"differ in conditions\.1\.congestion-control"):
        curves.figure(chosen(tmp_path), TIME, over="big")


def test_a_variable_of_two_sweeps_hides_nothing(tmp_path):
    runs = [of_sweep(tmp_path, 1, 32), of_sweep(tmp_path, 2, 64, sweep="other")]
    both = selection.choose(tmp_path, ",".join(run.name for run in runs))
    with pytest.raises(ConfigError, match="differ in conditions"):
        curves.figure(both, TIME, over="big")


def test_an_axis_of_words_keeps_their_order_and_has_no_unit(tmp_path):
    for repetition, control in enumerate(("cubic", "bbr"), start=1):
        path = run_with(tmp_path, repetition)
        file = path / "experiment.yaml"
        file.write_text(file.read_text() + f"conditions: [{{congestion-control: {control}}}]\n")
    found = curves.figure(chosen(tmp_path), TIME, over="congestion-control")
    assert [(point.text, point.at) for point in found.curves[0].points] == [("bbr", 0.0), ("cubic", 1.0)]
    assert found.unit == ""


def test_different_testbeds_and_scales_are_not_mixed(tmp_path):
    run_with(tmp_path, 1)

    def on_hosts(manifest):
        manifest["topology"]["kind"] = "inventory"

    run_with(tmp_path, 2, change=on_hosts)
    with pytest.raises(ConfigError, match="differ in hosts of"):
        curves.figure(chosen(tmp_path), TIME, over="load")


@pytest.mark.parametrize(("over", "told"), [("nonsense", "names no settings"), ("to", "names 2 settings")])
def test_an_axis_that_is_none_is_told_with_those_that_are(tmp_path, over, told):
    path = run_with(tmp_path, 1)
    experiment = yaml.safe_load((path / "experiment.yaml").read_text())
    experiment["traffic"].append({"iperf": {"from": "h3", "to": "h4"}})
    (path / "experiment.yaml").write_text(yaml.safe_dump(experiment))
    with pytest.raises(ConfigError, match=told):
        curves.figure(chosen(tmp_path), TIME, over=over)


def test_invalid_windows_do_not_count_and_are_told(tmp_path, capsys):
    write_run(tmp_path, repetition=1)
    write_run(tmp_path, repetition=2, invalid=("load8",))
    for path in (tmp_path / "nightly").iterdir():
        text = (path / "experiment.yaml").read_text()
        (path / "experiment.yaml").write_text(text)
    stem = tmp_path / "out"
    assert main(["figure", "iteration-time", "nightly", "--results", str(tmp_path), "-o", str(stem)]) == 0
    assert "not counted: load 8gbit in" in capsys.readouterr().out
    assert "# not counted: load 8gbit in" in stem.with_suffix(".csv").read_text()


def test_files_carry_conditions_scale_and_n(tmp_path, capsys):
    for repetition in (1, 2, 3):
        run_with(tmp_path, repetition, load_bps=80e6, seconds=0.2 + repetition / 100)
    stem = tmp_path / "figures.v1"
    assert main(["figure", "iteration-time", "e", "--results", str(tmp_path), "-o", str(stem)]) == 0
    written = capsys.readouterr().out.split()
    assert [Path(path).name for path in written] == [f"figures.v1.{end}" for end in ("svg", "pdf", "csv", "tex")]
    assert all(Path(path).stat().st_size for path in written)
    text = Path(written[2]).read_text()
    notes = [line for line in text.splitlines() if line.startswith("# ")]
    assert any("1:100" in line for line in notes)
    assert any("runs (n = 3): " in line for line in notes)
    assert "# workload.ddp.model: resnet50" in notes
    (row,) = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    assert (row["runs"], row["iterations"]) == ("3", "360")
    assert float(row["low"]) < float(row["median iteration time (ms)"]) < float(row["high"])
    latex = Path(written[3]).read_text()
    assert "1:100" in latex
    assert "n = 3 runs" in latex
    assert r"\begin{tabular}{lrrrr}" in latex
    assert rf" & {float(row['low']):.5g} to {float(row['high']):.5g} \\" in latex


def test_latex_shows_every_character_of_a_name():
    assert drawing.escaped("a_b & 5% \\x{1}~^#$\n\\end") == (
        r"a\_b \& 5\% \textbackslash{}x\{1\}\textasciitilde{}\textasciicircum{}\#\$ \textbackslash{}end"
    )
    assert drawing.escaped("*[2pt] <a|b>") == r"{*}{[}2pt{]} \textless{}a\textbar{}b\textgreater{}"


# Flows


def with_flows(path: Path, sizes: list[int], seconds: list[float], *, failed: int = 0) -> None:
    """Add flows to a run's window, a millisecond apart."""
    window = records.load(path / "manifest.json").windows[0]
    count = len(sizes)
    start = window.start_ns + 1_000_000 * np.arange(count)
    with TableWriter(path / "tables", run=path.name) as writer:
        writer.add(
            "flows",
            {
                "source": ["websearch0"] * count,
                "window_name": [window.name] * count,
                "flow": list(range(count)),
                "src": ["10.77.0.2"] * count,
                "dst": ["10.77.0.1"] * count,
                "src_port": [1] * count,
                "dst_port": [2] * count,
                "planned_start_ns": start,
                "start_ns": start,
                "connected_ns": start,
                "last_byte_ns": start,
                "end_ns": start + (np.array(seconds) * 1e9).astype(np.int64),
                "planned_bytes": sizes,
                "bytes": sizes,
                "retransmits": [0] * count,
                "error": ["shed"] * failed + [""] * (count - failed),
            },
            node="h2",
            launch="w1.websearch0",
        )


def test_completion_times_by_size_at_full_size(tmp_path):
    path = run_with(tmp_path, 1)
    with_flows(path, [500] * 20 + [50_000] * 150, [0.002] * 20 + list(np.linspace(0.01, 0.03, 150)), failed=3)
    found = flow_times.flow_times(chosen(tmp_path), slowdown=False)
    small, large = found.curves[0].bins
    assert (small.flows, large.flows, found.lost) == (17, 150, 3)
    assert small.low_bytes <= 50_000 < small.high_bytes  # 500 bytes at 1:100
    assert small.p50.estimate.value == pytest.approx(0.002)
    assert math.isnan(small.p99.estimate.value), "no 99th percentile of 17 flows"
    assert large.p50.estimate.value == pytest.approx(0.02, rel=0.01)
    assert large.p99.estimate.value == pytest.approx(0.0298, rel=0.01)


def test_slowdown_is_over_the_time_that_the_bytes_take_on_the_slowest_link(tmp_path):
    path = run_with(tmp_path, 1)
    alone = (14_480 + 10 * 66) * 8 * 100 / 25e9  # ten full segments of a flow of 1.448 MB at 1:100, on 25 Gbit/s
    with_flows(path, [14_480] * 10, [3 * alone] * 10)
    (curve,) = flow_times.flow_times(chosen(tmp_path), slowdown=True).curves
    assert curve.bins[0].p50.estimate.value == pytest.approx(3, rel=1e-6)


def test_flows_of_several_runs_have_the_interval_over_runs(tmp_path):
    medians = [0.02, 0.021, 0.024]
    for repetition, seconds in enumerate(medians, start=1):
        with_flows(run_with(tmp_path, repetition), [50_000] * 30, [seconds] * 30)
    (curve,) = flow_times.flow_times(chosen(tmp_path), slowdown=False).curves
    expected = level([level_of(value) for value in medians]).estimate
    assert curve.bins[0].p50.estimate.high == pytest.approx(expected.high, rel=1e-6)


def level_of(value: float):
    from orchestrator.analysis.stats.statistics import Estimate

    return Estimate(value, math.nan, math.nan)


def test_flows_of_other_windows_and_of_warm_up_do_not_count(tmp_path):
    path = run_with(tmp_path, 1)
    window = records.load(path / "manifest.json").windows[0]
    assert window.start_ns > BEGAN_NS
    with_flows(path, [50_000] * 5, [0.01] * 5)
    with pytest.raises(ConfigError, match="fewer than 8 flows"):
        flow_times.flow_times(chosen(tmp_path), slowdown=False)


@pytest.mark.parametrize("what", ["completion-times", "slowdown"])
def test_the_command_draws_flows_and_refuses_an_axis(tmp_path, what, capsys):
    with_flows(run_with(tmp_path, 1), [50_000] * 200, list(np.linspace(0.01, 0.03, 200)))
    assert main(["figure", what, "e", "--results", str(tmp_path), "-o", str(tmp_path / "f")]) == 0
    assert "bytes from" in (tmp_path / "f.csv").read_text()
    assert main(["figure", what, "e", "--over", "load", "--results", str(tmp_path)]) == 2
    assert main(["figure", "nonsense", "e", "--results", str(tmp_path)]) == 2
    assert "accepted: iteration-time" in capsys.readouterr().err
