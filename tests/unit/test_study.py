from __future__ import annotations

import json

import numpy as np
import pytest
import yaml
from night_runs import write_run

from orchestrator.analysis import curves, selection
from orchestrator.analysis.published import salamy
from orchestrator.cli import main
from orchestrator.report import study

LOADS_GBPS = (0, 4, 8, 12, 16, 18, 20, 21)


def write_curve(results, *, model="resnet50", ranks=4, traffic="iperf", transport="tcp", seed=1, flat_s=0.16, b=0.0,
                a_s=0.0, invalid=(), burst=False):  # fmt: skip
    """A run with a window a load, on a curve that is flat or follows a fit, whichever is higher."""
    levels = {f"l{load}": max(flat_s, a_s * np.exp(b / (25 - load))) for load in LOADS_GBPS}
    run = write_run(results, name=f"{model}-{traffic}", sweep=False, seconds=levels, iterations=60, seed=seed,
                    spread=0.002, repetition=seed, invalid=invalid)  # fmt: skip
    manifest = json.loads((run / "manifest.json").read_text())
    theory = 2 * (ranks - 1) / ranks * 25557032 * 4 / 100
    manifest["topology"]["links"] = [{"rate": 25e9}]
    manifest["jobs"] = [{"name": "training", "workload": "ddp", "model": model, "compute": "emulated",
                         "ranks": [{}] * ranks, "theory": {"bytes_per_iteration": theory}}]  # fmt: skip
    for window, load in zip(manifest["windows"], LOADS_GBPS, strict=True):
        sent = theory * 1.005 if transport == "tcp" else 0.0
        window["training"] = [{"job": "training", "sent_bytes": sent, "theory_bytes": theory}]
        window["loads"] = [{"requested_bps": load * 1e7, "achieved_bps": load * 0.99e7}] if load else []
    (run / "manifest.json").write_text(json.dumps(manifest))
    source = {"from": "h1", "to": "h5", **({"burst": {"width": "1ms"}} if burst else {})}
    windows = [{"name": f"l{load}", "traffic": [{traffic: source}] if load else []} for load in LOADS_GBPS]
    (run / "experiment.yaml").write_text(yaml.safe_dump({"windows": windows}))
    return run


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    results = tmp_path_factory.mktemp("curves")
    write_curve(results, seed=1, a_s=0.03, b=13)
    write_curve(results, seed=2, a_s=0.03, b=13, invalid=("l12",))
    write_curve(results, model="vgg16", flat_s=0.0, a_s=0.25, b=10.75)
    write_curve(results, ranks=3, traffic="websearch", a_s=0.03, b=13)
    write_curve(results, ranks=3, traffic="websearch", a_s=0.03, b=13, transport="rdma", seed=5)
    return results


def series(store):
    entries = [entry for path in sorted(store.glob("*")) for entry in selection.choose(store, path.name).entries]
    return curves.measured(entries)


def test_curves_are_told_apart_and_repetitions_are_one_point(store):
    found = {(one.kind.model, one.kind.traffic, one.kind.transport): one for one in series(store)}
    assert set(found) == {
        ("resnet50", "iperf", "tcp"), ("vgg16", "iperf", "tcp"), ("resnet50", "websearch", "tcp"),
        ("resnet50", "websearch", "rdma"),
    }  # fmt: skip
    resnet = found["resnet50", "iperf", "tcp"]
    assert [point.iterations for point in resnet.points] == [120, 120, 120, 60, 120, 120, 120, 120]
    assert resnet.points[2].load_bps == pytest.approx(7.92e9)
    assert resnet.theory_bytes == pytest.approx(153.3e6, rel=0.001)
    assert resnet.points[0].error_s > 0


def test_the_time_at_a_load_lies_between_measured_points_and_is_never_extrapolated(store):
    (vgg,) = (one for one in series(store) if one.kind.model == "vgg16")
    assert vgg.seconds_at(13.99e9) == pytest.approx(0.25 * np.exp(10.75 / (25 - 14.1)), rel=0.05)
    assert np.isnan(vgg.seconds_at(24e9))


def test_traffic_in_bursts_is_a_kind_of_its_own(tmp_path):
    run = write_curve(tmp_path, traffic="websearch", burst=True)
    (found,) = curves.measured(selection.choose(tmp_path, str(run)).entries)
    assert found.kind.traffic == "websearch-burst"


def test_tables_hold_ours_beside_what_is_printed(store):
    found = [study.analysed(one) for one in series(store)]
    tables = {title: rows for title, _, _, rows in study.tables(found, salamy())}
    (vgg,) = (row for row in tables["At the printed loads"] if row[:2] == ("vgg16, iperf", "13.99"))
    assert vgg[3] == "0.680"
    assert float(vgg[4].removesuffix(" %")) == pytest.approx(0, abs=5)
    held = {(row[0], row[1]): row[5] for row in tables["At the printed loads"]}
    assert held["vgg16, iperf", "13.99"] == "kept"
    assert held["vgg16, iperf", "18.48"] == "-"
    assert held["resnet50, websearch", "15.8"] == "kept"
    assert held["resnet50, iperf", "18.1"] == "kept"
    assert any("B 10.75" in row[-1] for row in tables["Fits"] if row[0].startswith("vgg16"))
    told = {row[0]: row[1] for row in tables["Congestion points"]}
    assert "no flat region" in next(text for name, text in told.items() if name.startswith("vgg16"))
    assert "point at" in next(text for name, text in told.items() if name.startswith("resnet50, iperf"))
    assert len(tables["TCP against RDMA"]) == 2
    assert {row[0].partition(",")[0] for row in tables["Without cross traffic"]} == {"resnet50", "vgg16"}


def test_no_table_on_transports_where_one_was_measured(store):
    found = [study.analysed(one) for one in series(store) if one.kind.transport == "tcp"]
    assert "TCP against RDMA" not in {title for title, *_ in study.tables(found, salamy())}


def test_the_page_says_what_cannot_be_compared(store, tmp_path, capsys):
    page = tmp_path / "page.html"
    assert main(["study", "salamy", "resnet50-iperf", "vgg16-iperf", "--results", str(store), "-o", str(page)]) == 0
    assert "not counted: l12" in capsys.readouterr().out
    text = page.read_text()
    for told in ("do not scale", "Compute was emulated", "over RDMA", "0.25", "Where the thesis contradicts itself"):
        assert told in text
    assert text.count("<svg") >= 2
    assert (tmp_path / "page-figures" / "load-iperf.pdf").exists()


def test_runs_without_a_curve_are_refused(tmp_path, capsys):
    write_run(tmp_path, sweep=False)
    assert main(["study", "salamy", "nightly", "--results", str(tmp_path), "-o", str(tmp_path / "page.html")]) == 1
    assert "no curve to show" in capsys.readouterr().err
