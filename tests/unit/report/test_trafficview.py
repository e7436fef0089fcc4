from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
from test_report import Balanced

from orchestrator.analysis.traffic import view
from orchestrator.analysis.traffic.pattern import infer
from orchestrator.report import style, traffic_section
from tests.helpers.made_traffic import made

FIGURES = {"heatmap", "arrivals", "flowchart", "total", "zoom", "shares", "period"}


@pytest.fixture(scope="module")
def seen():
    return view.look(made(), ranks={"train": ["h1", "h2", "h3", "h4"]})


def test_every_figure_is_drawn_and_light(seen, tmp_path):
    with style.look():
        drawn = list(traffic_section.figures(seen, scale=100, place="Window w1"))
        svgs = {name: style.save(drawing, tmp_path / name).svg for name, _, drawing, _ in drawn}
    assert set(svgs) == FIGURES
    assert sum(map(len, svgs.values())) < 800_000
    assert all("scale (100)" in caption for *_, caption in drawn)
    assert "h1 → h4" in svgs["zoom"]
    assert "h2 → h1" in svgs["zoom"]
    assert "h1 → h2" not in svgs["zoom"]  # acknowledgements are left out
    assert "h1:45000 → h5:15201" in svgs["flowchart"]


@pytest.mark.parametrize("cross", [0, 10_000])
def test_what_there_is_not_is_not_drawn(cross):
    nothing_told = view.look(made(cross=cross, told=False))
    with style.look():
        names = {name for name, *_ in traffic_section.figures(nothing_told)}
        silent = replace(
            made(),
            bin_wire=made().bin_wire * 0,
            wire_bytes=made().wire_bytes * 0,
            payload_bytes=made().payload_bytes * 0,
            bin_payload=made().bin_payload * 0,
        )
        assert {name for name, *_ in traffic_section.figures(view.look(silent))} <= {"arrivals"}
    assert names == FIGURES - {"shares", "period"}


def text_of(html):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


def test_the_tables_say_what_was_seen(seen):
    html = traffic_section.section([("w1", seen), ("w2", seen)], scale=100)
    parser = Balanced()
    parser.feed(html)
    assert parser.open == []
    text = text_of(html)
    for part in (
        "ring: h1 → h4 → h3 → h2 → h1; score 1.00",
        "against launch order",
        "100 ms",
        "no log",
        "320 MB",
        "flow 2: training out of h1, shared",
        "h1:45000 → h5:15201",
        "SSH and set-up",
        "w2",
    ):
        assert part in text, part


def test_unknown_is_said_to_be_unknown():
    matrix = [[0, 9, 9, 0], [9, 0, 0, 1], [0, 9, 0, 9], [9, 3, 3, 0]]
    found = infer(matrix)
    text = traffic_section.pattern_text(found, ("a", "b", "c", "d"))
    assert re.match(r"unknown: [a-z ]+ fits best, 0\.\d\d; next [a-z ]+ 0\.\d\d$", text)
    html = traffic_section.section([("", view.look(made(iterations=2)))])
    assert "none found" in html
    assert "nan" not in text_of(html)
    assert not math.isnan(found.score)
