"""Figures of Salamy's page that draw fits, congestion points and generated traffic: which there are, what they say."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from test_headline import point, series

from orchestrator.papers.salamy import fitfigures, injection, model
from orchestrator.report.run import schedules
from orchestrator.report.style import look, save
from tests.helpers.made_tables import table

LOADS = (0, 4, 8, 12, 16, 18, 20, 21)


def curve(traffic, *, n=0.5, b=7.2, **told):
    return model.analysed(
        series(*(point(load, 0.2 * math.exp(b / (25 - load) ** n)) for load in LOADS), traffic=traffic, **told)
    )


def drawn(tmp_path, *found):
    return {picture.name: picture for picture in fitfigures.draw(found, tmp_path)}


def test_both_kinds_of_web_search_are_drawn_together_with_their_r2(tmp_path):
    found = drawn(tmp_path, curve("websearch"), curve("websearch-burst", n=2, b=60))
    picture = found["websearch-bert-large"]
    assert "(as in Fig 3-7)" in picture.title
    assert "bert-large, websearch, R2 1.000" in picture.svg
    assert "bert-large, websearch-burst, R2 0." in picture.svg
    assert "websearch-bert-large" not in drawn(tmp_path, curve("websearch")), "one kind alone compares nothing"


def test_trend_lines_are_straight_on_the_axis_of_their_kind(tmp_path):
    found = drawn(tmp_path, curve("iperf", n=1), curve("websearch"), curve("websearch-burst", n=2, b=60))
    for axis in ("1 / (C - load)", "1 / sqrt(C - load)", "1 / (C - load)^2"):
        assert axis in found["trends"].svg
    assert found["trends"].svg.count("R2 1.000") == 3
    assert drawn(tmp_path, curve("none")) == {}


def test_a_congestion_point_is_drawn_where_there_is_one(tmp_path):
    flat = model.analysed(
        series(
            *(point(load, max(0.16, 0.03 * math.exp(13 / (25 - load)))) for load in LOADS),
            name="resnet50",
            traffic="iperf",
        )
    )
    onset = flat.point.onset
    assert onset is not None
    for intercept, slope in (onset.flat, onset.tangent):
        assert intercept + slope * onset.crossing_bps == pytest.approx(onset.flat[0], rel=0.05), "they cross there"
    found = drawn(tmp_path, flat, curve("websearch"))
    assert f"{onset.load_bps / 1e9:.1f} Gbit/s" in found["onsets"].svg
    assert "bert-large" not in found["onsets"].svg
    assert "onsets" not in drawn(tmp_path, curve("websearch"))


def place(traffic, requested, load=None, *, name="resnet50"):
    return SimpleNamespace(
        kind=SimpleNamespace(traffic=traffic, model=name),
        requested_bps=requested * 1e9,
        load_bps=(requested if load is None else load) * 1e9,
    )


def test_rates_are_compared_at_the_highest_load_of_both_kinds_beside_one_model():
    consistent = [place("websearch", load) for load in (4, 20, 24)]
    burst = [place("websearch-burst", load) for load in (4, 20)]
    other = place("websearch-burst", 24, name="vgg16")
    assert injection.samples([*consistent, *burst, other]).rates == (consistent[1], burst[1])
    assert injection.samples(consistent).rates == ()


def test_traces_lie_next_to_the_loads_of_the_thesis():
    places = [place("websearch", 4), place("websearch", 6, 5.5), place("websearch-burst", 6), place("iperf", 10)]
    assert injection.samples(places).traces == (places[1],), "bursts of 6 Gbit/s are none of 10"


def test_a_distribution_names_each_curve(tmp_path):
    draw = np.random.default_rng(1)
    with look():
        drawing = schedules.distribution([("steady", draw.normal(20, 1, 5000)), ("bursty", np.zeros(5000))])
        svg = save(drawing, tmp_path / "d").svg
    assert "steady (5,000 steps, 0% of them below" in svg
    assert "bursty (5,000 steps, 100% of them below" in svg


MS = 1_000_000


def generated(*bytes_a_ms, scale=100):
    """A run with a window `w` in which h4 sent so much to h1 in each millisecond, by the generator `web`."""
    span = SimpleNamespace(
        name="w",
        start_ns=0,
        end_ns=len(bytes_a_ms) * MS,
        span_ns=(0, len(bytes_a_ms) * MS),
        loads=[SimpleNamespace(source="web", src="h4", dst="h1")],
    )
    sent = [
        {"node": "h4", "direction": "out", "kind": "cross", "name": "web", "bin_ns": place * MS, "wire_bytes": size}
        for place, size in enumerate(bytes_a_ms)
    ]
    received = [{**row, "node": "h1", "direction": "in"} for row in sent]
    rows = {"generated": [{"window_name": "w", "source": "web"}, {"window_name": "gone", "source": "web"}]}
    found = table("cross_packets", [{key: row[key] for key in row if key != "node"} for row in sent + received])
    found = found.set_column(found.schema.get_field_index("node"), "node", [[row["node"] for row in sent + received]])
    return SimpleNamespace(scale=scale, windows=[span], rows=lambda name: rows.get(name, []), table=lambda _: found)


def test_rates_are_those_sent_in_each_millisecond_at_full_size():
    ((window, source, rate),) = schedules.sent_rates(generated(25_000, 0, 12_500))
    assert (window, source) == ("w", "web")
    assert rate.tolist() == pytest.approx([20.0, 0.0, 10.0]), "25 kB a millisecond are 0.2 Gbit/s, times the scale"
