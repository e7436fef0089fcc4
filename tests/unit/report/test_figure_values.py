"""Figures by value: the numbers that a drawing shows, in the page and beside it, and long tables that fold."""

from __future__ import annotations

import csv
import re

import numpy as np
import pytest

from orchestrator.analysis.stats.statistics import Estimate
from orchestrator.report import page, tables, values
from orchestrator.report.run import report_page
from orchestrator.report.style import errorbars, figure, look, save
from tests.helpers.sealed_run import make_run


def drawn(draw):
    with look():
        drawing, panels = figure(1, height_in=2)
        draw(panels[0])
        return drawing


def test_points_with_intervals_are_read_back_with_both_ends():
    estimates = [Estimate(2.0, 1.5, 2.75), Estimate(3.0, float("nan"), float("nan"))]

    def draw(panel):
        errorbars(panel, [0.0, 8.0], estimates, number=0, label="vgg16")
        panel.set(xlabel="load (Gbit/s)", ylabel="time (s)")

    (one,) = values.of_figure(drawn(draw))
    assert (one.label, one.x, one.y) == ("vgg16", "load (Gbit/s)", "time (s)")
    assert one.rows == (("0", "2", "1.5", "2.75"), ("8", "3", "", ""))


def test_lines_bars_and_words_on_an_axis():
    def draw(panel):
        panel.barh([0, 1], [5.0, 7.5], label="measured")
        panel.plot([4.0, np.nan], [0, 1], label="theory")
        panel.set_yticks([0, 1], ["first", "second"])
        panel.axvline(3)

    bars, line = values.of_figure(drawn(draw))
    assert bars.rows == (("5", "first", "", ""), ("7.5", "second", "", ""))
    assert line.rows == (("4", "first", "", ""),)


def test_a_heatmap_is_read_back_cell_by_cell(tmp_path):
    def draw(panel):
        panel.imshow(np.array([[np.nan, 1.25], [0.5, np.nan]]))
        panel.set_xticks([0, 1], ["h1", "h2"])
        panel.set_yticks([0, 1], ["h1", "h2"])
        panel.set(xlabel="to", ylabel="from", title="training (GB)")
        panel.imshow(np.ones((2, 2, 4)))  # of colours: a drawing, and no numbers

    (grid,) = values.grids(drawn(draw))
    assert (grid.panel, grid.columns) == ("training (GB)", ("h1", "h2"))
    assert grid.rows == (("h1", ("", "1.25")), ("h2", ("0.5", "")))
    assert (grid.short, grid.between) == (True, "0.5 to 1.25")
    saved = save(drawn(draw), tmp_path / "heatmap")
    rows = list(csv.reader((tmp_path / "heatmap.csv").open()))[1:]
    assert [row[1:4] for row in rows] == [["from h1", "h2", "1.25"], ["from h2", "h1", "0.5"]]
    assert {row[0] for row in rows} == {"training (GB)"}
    shown = page.environment().from_string('{% from "drawn.html" import drawn %}{{ drawn(picture, "f") }}')
    text = shown.render(picture={"saved": saved, "name": "heatmap", "title": "Who", "caption": ""})
    assert "<th>from \\ to</th>" in text
    assert '<tr><th>h1</th><td class="n"></td><td class="n">1.25</td></tr>' in text


def test_a_large_heatmap_is_told_and_lies_in_the_file(tmp_path):
    saved = save(drawn(lambda panel: panel.imshow(np.arange(400.0).reshape(20, 20))), tmp_path / "large")
    shown = page.environment().from_string('{% from "drawn.html" import drawn %}{{ drawn(picture, "f") }}')
    text = shown.render(picture={"saved": saved, "name": "large", "title": "Who", "caption": ""})
    assert "20 by 20 values from 0 to 399, all in the CSV file" in text
    assert len((tmp_path / "large.csv").read_text().splitlines()) == 401


def test_a_figure_is_written_with_all_its_numbers(tmp_path):
    drawing = drawn(lambda panel: panel.plot(np.arange(100), np.arange(100) ** 2, label="a.b"))
    saved = save(drawing, tmp_path / "gpt-1.3b")
    assert {path.name for path in tmp_path.iterdir()} == {f"gpt-1.3b.{end}" for end in ("svg", "pdf", "csv")}
    rows = list(csv.DictReader((tmp_path / "gpt-1.3b.csv").open()))
    assert len(rows) == 100
    assert (rows[9]["x"], rows[9]["y"], rows[9]["series"]) == ("9", "81", "a.b")
    assert not saved.values[0].short
    assert saved.values[0].between == "0 to 9801"


def test_a_report_shows_the_values_of_its_figures_as_text(tmp_path):
    def named(manifest):
        manifest["experiment"] = "<b>&"

    run = make_run(tmp_path / "e", change=named)
    text = report_page.render([run], tmp_path / "report.html").read_text()
    assert text.count('<details class="values">') >= 3
    assert "<b>&" not in text
    folder = tmp_path / "report-figures"
    linked = re.findall(r'href="report-figures/([^"]+\.csv)"', text)
    assert linked
    assert all((folder / name).stat().st_size for name in linked)


@pytest.mark.parametrize(("rows", "folded"), [(20, False), (21, True)])
def test_a_table_of_more_than_twenty_rows_folds(rows, folded):
    template = page.environment().from_string('{% from "table.html" import shown %}{{ shown(table) }}')
    shown = template.render(table=tables.table("Loads", ["run"], [["r"]] * rows))
    assert ("<details" in shown) is folded
    assert (f"Loads: {rows} rows" in shown) is folded
    assert shown.count("<td>r</td>") == rows
