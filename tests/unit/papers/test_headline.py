"""What the thesis concludes, worked out from curves that were made up by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from orchestrator.analysis.compare.curves import CurvePoint, Kind, Series
from orchestrator.analysis.traffic.sharedlink import SharedLink
from orchestrator.papers.salamy import differences, form, headline, model
from orchestrator.papers.salamy.published import salamy
from orchestrator.report.study.content import NOT_JUDGED

PARAMETERS = 335_141_888  # BERT-large's
RUNS = 2


def point(load_gbps, mean_s, *, spread=0.0, sent_gbps=None):
    seconds = mean_s * (1 + spread * np.array([-1.0, 1.0] * 50))
    links = (
        () if sent_gbps is None else (SharedLink(port="s", sent_bps=sent_gbps * 1e9, waiting_s=0.0, drops_per_s=0.0),)
    )
    return CurvePoint(
        requested_bps=load_gbps * 1e9,
        load_bps=load_gbps * 1e9,
        mean_s=mean_s,
        error_s=0.001,
        freedom=10.0,
        p99_s=float(seconds.max()),
        iterations=100,
        seconds=(seconds,),
        links=links * RUNS,
        runs={f"r{number}": mean_s for number in range(RUNS)},
    )


def series(*points, name="bert-large", traffic="websearch-burst", parameters=PARAMETERS):
    kind = Kind(model=name, traffic=traffic, transport="tcp", ranks=3, workload="ddp")
    return Series(
        kind=kind,
        points=points,
        capacity_bps=25e9,
        theory_bytes=2 * 2 / 3 * 4 * parameters,
        scales=(100,),
        emulated=True,
    )


def told(*found):
    analysed = [model.analysed(one) for one in found]
    return {one.what: one for section in headline.sections(analysed, salamy()) for one in section.comparisons}


def test_a_slow_down_is_over_the_time_without_traffic_and_a_speed_up_over_theory_at_what_is_left():
    bert = series(point(0, 1.0), point(20, 8.0), point(24.65, 183.0))
    assert headline.slowdown(bert, 20e9) == pytest.approx(8.0)
    needs_s = 2 * 2 / 3 * 4 * PARAMETERS * 8 / 0.35e9  # the thesis: 37 s, so 5 times
    assert headline.speedup(bert, 24.65e9) == pytest.approx(183 / needs_s)
    assert headline.speedup(bert, 24.65e9) == pytest.approx(4.5, abs=0.1)
    assert math.isnan(headline.slowdown(bert, 24.9e9)), "never beyond the last point"
    one = told(bert)["slow-down of bert-large, websearch-burst at 20 Gbit/s"]
    assert (one.ours, one.printed, one.verdict) == ("8 times", "8 times", NOT_JUDGED)


def test_sizes_are_those_that_were_trained():
    found = told(
        series(point(0, 1.0)),
        series(point(0, 0.1), name="resnet50", parameters=25_557_032),
        series(point(0, 0.1), name="densenet161", parameters=25_557_032),
    )
    assert found["parameters of resnet50"].difference == "+0.0 %"
    assert found["parameters of densenet161"].difference == "-11 %"
    assert found["parameters of resnet50"].verdict == NOT_JUDGED, "a table beside a table"
    bert = found["parameters of bert-large"]
    assert (bert.ours, bert.verdict, "335,141,888" in bert.why) == ("335,141,888", NOT_JUDGED, True)


def test_the_square_fits_what_follows_it_and_not_what_does_not():
    loads = (0, 5, 10, 14, 17, 19, 20)
    square = series(*(point(load, 0.5 * math.exp(60 / (25 - load) ** 2)) for load in loads))
    zigzag = series(*(point(load, 1.0 + load % 2) for load in loads))
    assert told(square)["R2, bert-large"].ours == "1"
    assert float(told(zigzag)["R2, bert-large"].ours) < 0.1
    forms = [form.compared(model.analysed(one), salamy()).verdict for one in (square, zigzag)]
    assert forms == ["agrees", "differs"], "a constant describes what follows nothing better"
    both = told(square, series(*zigzag.points, name="vgg16"))
    assert "R2, mean over models (2)" in both
    assert told(series(*square.points, traffic="websearch"))["R2, bert-large"].ours == "-", "beside bursts alone"


def test_scatter_is_that_of_points_at_such_loads():
    burst = series(point(0, 1.0, spread=0.9), point(5, 1.0, spread=0.02), point(20, 4.0, spread=0.5))
    quiet = series(point(5, 1.0, spread=0.0), point(22, 2.0, spread=0.1), traffic="websearch")
    found = told(burst, quiet)
    variance = 0.02**2 * 100 / 99
    assert found["variance over the mean, low loads, 2 points"].ours == f"{100 * variance / 2:.4g} %"
    assert found["variance over the mean, high loads, websearch-burst, 1 points"].ours == f"{25 * 4 * 100 / 99:.4g} %"
    assert found["99th percentile above the mean, high loads, 2 points"].ours == "30 %"


@pytest.mark.parametrize(
    ("sent", "verdict"), [(22.5, "agrees"), (24.5, "differs"), (20.0, "differs"), (None, "cannot tell")]
)
def test_use_of_the_bottleneck_is_the_highest_beside_bursts(sent, verdict):
    found = told(series(point(0, 1.0, sent_gbps=5), point(20, 4.0, sent_gbps=sent)) if sent else series(point(0, 1.0)))
    assert found["highest use of the bottleneck beside bursts"].verdict == verdict


def test_fits_and_points_of_congestion_are_shown_with_their_differences():
    resnet = {"name": "resnet50", "parameters": 25_557_032, "traffic": "iperf"}
    loads = (0, 4, 8, 12, 16, 18, 20, 21)
    flat = series(*(point(load, max(0.16, 0.03 * math.exp(13 / (25 - load)))) for load in loads), **resnet)
    bert = series(*(point(load, 0.2 * math.exp(7.2 / (25 - load) ** 0.5)) for load in loads), traffic="websearch")
    found = {
        one.what: one
        for section in differences.sections([model.analysed(flat), model.analysed(bert)], salamy())
        for one in section.comparisons
    }
    fitted = found["A of bert-large, websearch, n 0.5, over tcp (printed: tcp)"]
    assert (fitted.printed, fitted.difference, fitted.verdict) == ("0.564 s", "-65 % (-65 to -65)", "differs")
    assert found["load, resnet50, iperf"].printed == "18.1 Gbit/s"
    assert found["load, resnet50, iperf"].difference
    none = found["volume over theory, bert-large, websearch"]
    assert (none.ours, none.printed, none.why.startswith("none: ")) == ("-", "28 %", True)
    assert found["bert-large, websearch"].printed == "2.63 Gbit/s"
    assert found["needed of what 21.00 (printed: 20.79) Gbit/s leave, resnet50, iperf"].printed == "68.88 %"
