"""What a bench finds is written to docs/measurements and drawn from there: tables, curves, where it was measured."""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree as ET

import pytest

from documentation import measurements
from tests.bench import recording
from tests.bench.figure import Figure, Table

FOUND = [
    Figure(
        what="read", unit="s", values=(2.0, 1.0, 3.0), against="peer", reference=(4.0,), over=(("flows", 50.0, "ours"),)
    ),
    Figure(what="read", unit="s", values=(8.0,), against="peer", reference=(9.0,), over=(("flows", 5e6, "ours"),)),
    Figure(what="start", unit="s", values=(0.05,), against="goal", reference=(0.3,)),
    Figure(what="in the table", unit="s", values=(1.0,), tabled=True),
    Table(title="Cells", columns=("cell", "held | of"), rows=(("a", 7), ("b | c", None))),
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(recording, "FOLDER", tmp_path)
    monkeypatch.setattr(measurements, "FOLDER", tmp_path)
    return tmp_path


def test_what_is_recorded_says_where_and_beside_what_it_was_measured(folder):
    path = recording.record("start", FOUND, load="nothing else")
    data = json.loads(path.read_text())
    assert data["command"] == "python -m tests.bench start"
    assert {"version", "date", "machine", "load", "quick"} <= data.keys()
    assert {"cpu", "cores", "memory", "kernel"} <= data["machine"].keys()
    assert path.name == f"start.{path.name.split('.')[1]}.json"
    assert str(data["machine"]["cores"]) in path.name
    assert recording.record("start", FOUND[2:3], load="nothing", quick=True) == path  # in place of the one before
    assert "start --quick" in path.read_text()


def test_where_the_project_lies_is_not_recorded(folder):
    said = f"{sys.executable}: no such module; see {recording.ROOT}/docs/predict.md and /usr/bin/python3"
    rows = ((said, 1),)
    text = recording.record("start", [Table(title="Why", columns=("said", "n"), rows=rows)], load="").read_text()
    assert str(recording.ROOT) not in text
    assert f"{recording.ROOT.name}/docs/predict.md and /usr/bin/python3" in text


def test_figures_are_tables_and_points_are_curves(folder):
    recording.record("start", FOUND, load="nothing else")
    (record,) = measurements.records()
    curve, single, cells = record["tables"]
    assert curve["columns"] == ["flows", "ours", "peer"]
    assert curve["rows"] == [[50.0, 2.0, 4.0], [5e6, 8.0, 9.0]]
    assert [row[0] for row in single["rows"]] == ["read", "read", "start"]
    assert dict(zip(single["columns"], single["rows"][0], strict=True)) == {
        "what": "read",
        "unit": "s",
        "median": 2.0,
        "least": 1.0,
        "most": 3.0,
        "n": 3,
        "against": "peer",
        "reference": 4.0,
        "ratio": 0.5,
    }
    assert cells["title"] == "Cells"


def test_a_page_has_the_tables_and_draws_the_curves(folder):
    recording.record("start", FOUND, load="nothing else")
    page = measurements.page()
    assert "## start" in page
    assert "| b \\| c |  |" in page
    (figure,) = re.findall(r"<figure.*?</figure>", page)
    drawing = ET.fromstring(figure)  # noqa: S314 - of our own
    assert len(list(drawing.iter("polyline"))) == 2
    assert [place for place in drawing.iter("text") if place.text == "1k"]
    assert "\n\n" not in figure


def test_a_heading_that_pages_link_to_stays(folder):
    path = recording.record("captures", FOUND, load="nothing")
    path.write_text(path.read_text().replace('"title": null', '"title": "Reading captures"'))
    recording.record("captures", FOUND, load="nothing")
    assert "## Reading captures" in measurements.page()


@pytest.mark.parametrize(
    ("cell", "number"), [("0.52 s (0.48 to 0.73)", 0.52), ("1,000,000", 1e6), (3, 3.0), ("-", None), (None, None)]
)
def test_the_number_of_a_cell(cell, number):
    assert measurements.number_of(cell) == number


def test_every_file_has_what_the_site_draws():
    for path in measurements.FOLDER.glob("*.json"):
        record = json.loads(path.read_text(encoding="utf-8"))
        assert recording.as_text(record) == path.read_text(encoding="utf-8"), path
        assert path.name.startswith(f"{record['bench']}.")
        assert record["tables"]
        for table in record["tables"]:
            assert {len(row) for row in table["rows"]} == {len(table["columns"])}, (path, table["title"])
            for column in [table["curve"]["x"], *table["curve"]["y"]] if "curve" in table else []:
                assert column in table["columns"]


@pytest.mark.parametrize("loads", [(0.0, 20.0), (-3.0, 5.0), (0.0, 0.0), (0.0, 0.004)])
def test_an_axis_with_zero_is_drawn_to_a_linear_scale(loads):
    table = {
        "columns": ["load", "mean"],
        "rows": [[load, 5.0] for load in loads],
        "curve": {"x": "load", "y": ["mean"], "unit": "ms"},
    }
    places = [float(found) for found in re.findall(r'<circle cx="([\d.]+)"', measurements.drawn(table))]
    assert places == sorted(places)
    assert all(0 < place < 1000 for place in places)
