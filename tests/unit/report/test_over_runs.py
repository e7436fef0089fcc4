"""Runs that repeat each other are one point, with intervals over runs: made of recorded runs, written once more."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest
import yaml

from orchestrator.analysis.stats.levels import level
from orchestrator.analysis.stats.statistics import Estimate
from orchestrator.report.run import over_runs
from orchestrator.report.run.report_page import render
from orchestrator.report.runs import load
from orchestrator.store.stamps import MANIFEST

STORE = Path(__file__).parents[2] / "data" / "store"
(WINDOWS,) = (STORE / "windows").iterdir()  # a window without and two with cross traffic


def repeated(folder: Path, *factors: float, grace: str = "") -> list[Path]:
    """The recorded run as often as there are factors, by which its medians differ."""
    paths = []
    for number, factor in enumerate(factors):
        path = shutil.copytree(WINDOWS, folder / f"run{number}{grace}")
        found = json.loads((path / MANIFEST).read_text())
        found |= {"run": path.name, "valid": True, "reasons": []}
        for window in found["windows"]:
            window["valid"] = True
            for row in window["training"]:
                row.update({key: value * factor for key, value in row.items() if key.startswith("p50")})
        (path / MANIFEST).write_text(json.dumps(found))
        if grace:
            file = path / "experiment.yaml"
            file.write_text(file.read_text().replace("grace: 5s", f"grace: {grace}"))
        paths.append(path)
    return paths


def test_windows_that_were_set_alike_are_a_point_over_runs(tmp_path):
    runs = load(repeated(tmp_path, 1.0, 1.02, 0.99))
    (curve,) = over_runs.curves(runs)
    assert len(curve.points) == len(runs[0].windows) == 3
    assert curve.points[0].requested_bps == 0 < curve.points[1].requested_bps < curve.points[2].requested_bps
    for point, window in zip(curve.points, runs[0].windows, strict=True):
        (row,) = window.training
        own = [Estimate(row.p50_s * f, row.p50_low_s * f, row.p50_high_s * f) for f in (1.0, 1.02, 0.99)]
        assert point.level.runs == 3
        assert point.level.between == pytest.approx(level(own).between)
        assert point.level.within == pytest.approx(level(own).within)
        assert point.level.estimate.low < row.p50_s < point.level.estimate.high
    assert [row[2] for row in over_runs.rows([curve])] == ["3", "3", "3"]


def test_what_was_set_otherwise_is_another_curve_and_one_run_has_no_interval(tmp_path):
    runs = load([*repeated(tmp_path, 1.0, 1.1), *repeated(tmp_path, 1.0, grace="6s")])
    found = {curve.label: curve for curve in over_runs.curves(runs)}
    assert len(found) == 2
    (other,) = (curve for label, curve in found.items() if "grace 6s" in label)
    assert all(point.level.runs == 1 and math.isnan(point.level.estimate.low) for point in other.points)
    assert {row[0] for row in over_runs.rows(list(found.values()))} == set(found) - {other.label}
    assert over_runs.rows([other]) == []
    assert over_runs.drawn([other]) is None
    _, caption = over_runs.drawn(list(found.values()))
    assert "Points without bars were measured in one run" in caption


def test_windows_of_one_run_that_repeat_each_other_are_no_runs(tmp_path):
    (path,) = repeated(tmp_path, 1.0)
    file = path / "experiment.yaml"
    found = json.loads((path / MANIFEST).read_text())
    quiet = next(window for window in found["windows"] if not window["loads"])
    again = {**quiet, "window": "again"}
    found["windows"].append(again)
    (path / MANIFEST).write_text(json.dumps(found))
    experiment = yaml.safe_load(file.read_text())
    (described,) = (window for window in experiment["windows"] if window["name"] == quiet["window"])
    experiment["windows"].append({**described, "name": "again"})
    file.write_text(yaml.safe_dump(experiment))
    (curve,) = over_runs.curves(load([path]))
    assert [point.level.runs for point in curve.points] == [1, 1, 1]


def test_the_page_has_the_table_and_the_figure(tmp_path):
    page = render(repeated(tmp_path, 1.0, 1.02), tmp_path / "report.html").read_text()
    assert "<h2>Levels over runs</h2>" in page
    assert "of that, within runs" in page
    assert (tmp_path / "report-figures" / "over-load.svg").stat().st_size > 1000
    alone = render([WINDOWS], tmp_path / "alone.html").read_text()
    assert "<h2>Levels over runs</h2>" not in alone


@pytest.mark.parametrize("salts", [("s", "s", "t"), (None, None, "t")])
def test_a_report_of_several_runs_names_those_that_drew_alike(tmp_path, salts):
    paths = repeated(tmp_path, 1.0, 1.02, 0.99)
    for path, salt in zip(paths, salts, strict=True):
        found = json.loads((path / MANIFEST).read_text())
        (path / MANIFEST).write_text(json.dumps({**found, "salt": salt}))
    page = render(paths, tmp_path / "page.html").read_text()
    assert page.count("drawn alike, by one `--seed` or by runs older than salts: run0, run1; their random numbers") == 1
    assert "drawn alike" not in render(paths[1:], tmp_path / "page.html").read_text()
