from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest

from cross_traffic import distributions, drawn_schedules, schedule_files
from cross_traffic.agents import flow_drawing
from cross_traffic.schedule_files import BurstShape
from orchestrator.core.errors import ConfigError

WEBSEARCH = distributions.find("websearch")


def spec(**options):
    return drawn_schedules.stream_spec(WEBSEARCH, **{"load_bps": 10e9, "mtu": 1500, "seed": 1, **options})


def test_the_mean_of_web_search_is_what_its_table_makes_it():
    """The piecewise-linear table of DCTCP has a mean of 1.71 MB."""
    assert flow_drawing.Sizes(WEBSEARCH.points).mean() == pytest.approx(1_711_250)


@pytest.mark.parametrize("name", distributions.known())
def test_every_distribution_names_its_source(name):
    assert "SIGCOMM" in distributions.find(name).source


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "holds no points"),
        ("bytes,cdf\n", "holds no points"),
        ("10,0.5\n5,1\n", "2: sizes must not fall"),
        ("10,0.5\n20,0.4\n30,1\n", "2: probabilities must not fall"),
        ("10,0.5\n20,0.9\n", "the last point has probability 0.9, not 1"),
        ("-1,0.5\n20,1\n", "1: -1 is no size"),
        ("nan,0.5\n20,1\n", "nan is no size"),
        ("10,nan\n20,1\n", "nan is no probability"),
        ("10,1.5\n", "1.5 is no probability"),
        ("1e30,1\n", "1e30 is no size"),
        ("10;1\n", "is not two numbers"),
        ("10,0.5,3\n20,1\n", "is not two numbers"),
        ("0,1\n", "every flow would be of 0 bytes"),
        ("\n".join(f"{i},0" for i in range(10_002)), "more than 10000 points"),
    ],
)
def test_a_bad_distribution_gets_one_clear_error(tmp_path, content, told):
    path = tmp_path / "cdf.csv"
    path.write_text(content)
    with pytest.raises(ConfigError) as caught:
        distributions.find(str(path))
    assert told in caught.value.message
    assert str(path) in caught.value.message


def test_an_unknown_distribution_tells_what_there_is():
    with pytest.raises(ConfigError, match="websearch") as caught:
        distributions.find("nosuch")
    assert "datamining, facebook, websearch" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "holds no flows"),
        ("start_s,bytes\n", "holds no flows"),
        ("when,bytes\n", "the head must be"),
        ("start_s,bytes\n0.5,10\n0.4,10\n", "3: starts must not fall"),
        ("start_s,bytes\n-1,10\n", "no start"),
        ("start_s,bytes\nnan,10\n", "no start"),
        ("start_s,bytes\n1,0\n", "no size"),
        ("start_s,bytes\n1,-5\n", "no size"),
        ("start_s,bytes\n1,1e20\n", "no size"),
        ("start_s,bytes\n1,1.5\n", "no size"),
        ("start_s,bytes\n1,inf\n", "no size"),
        ("start_s,bytes\n1\n", "must be numbers"),
        ("start_s,bytes\nx,y\n", "must be numbers"),
    ],
)
def test_a_bad_schedule_gets_one_clear_error(tmp_path, content, told):
    path = tmp_path / "flows.csv"
    path.write_text(content)
    with pytest.raises(ConfigError) as caught:
        list(schedule_files.read_schedule(path))
    assert told in caught.value.message


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"load_bps": 0.0}, "cannot be scheduled"),
        ({"load_bps": float("nan")}, "cannot be scheduled"),
        ({"burst": BurstShape(width_s=0.01, period_s=0.01, height=1)}, "does not fit"),
        ({"burst": BurstShape(width_s=0.001, period_s=0.01, height=11)}, "more than all bytes"),
        ({"burst": BurstShape(width_s=0.001, period_s=0.01, height=3), "load_bps": 1e6}, "too little"),
    ],
)
def test_what_cannot_be_scheduled_says_why(options, told):
    with pytest.raises(ConfigError, match=told):
        spec(**options)


def test_the_least_load_that_a_burst_error_names_is_enough():
    shape = BurstShape(width_s=0.001, period_s=0.01, height=3)
    with pytest.raises(ConfigError) as caught:
        spec(burst=shape, load_bps=1e6)
    least = float(caught.value.message.split("needs ")[1].split()[0])
    spec(burst=shape, load_bps=least * 1.001)


def test_bursts_are_as_published():
    """Salamy, section 3.3.2: of a mean of 6 Gbit/s 18 in the first millisecond (2.25 MB, two flows), then 4.7."""
    made = spec(load_bps=6e9, burst=BurstShape(width_s=0.001, period_s=0.01, height=3), duration_s=2.0)
    tally = schedule_files.Tally(
        framing=flow_drawing.Framing(1500), burst=BurstShape(width_s=0.001, period_s=0.01, height=3)
    )
    first = []
    for at, size, _ in flow_drawing.drawn(made):
        tally.add(at / 1e9, size)
        if at < 1_000_000:
            first.append(size)
    assert len(first) == 2
    assert sum(first) == pytest.approx(2.25e6 * 1448 / 1514, rel=0.01)
    profile = tally.profile()
    assert profile[0] == pytest.approx(3.0, rel=0.01), "the first phase is as wide as the burst"
    assert len(profile) == 10
    assert sum(profile[1:]) / 9 == pytest.approx(0.778, rel=0.01)
    assert tally.flows == 200 * 10


@pytest.mark.parametrize(
    ("width_s", "period_s", "phases"),
    [(0.001, 0.01, 10), (0.003, 0.01, 3), (0.006, 0.01, 2), (0.0001, 0.01, 20), (0.004, 0.0101, 2)],
)
def test_a_profile_has_the_burst_by_itself_and_conserves_what_is_sent(width_s, period_s, phases):
    burst = BurstShape(width_s=width_s, period_s=period_s, height=1.5)
    edges = burst.phases_ns()
    assert (edges[0], edges[1], edges[-1]) == (0, round(width_s * 1e9), round(period_s * 1e9))
    assert len(edges) == phases + 1
    assert min(b - a for a, b in itertools.pairwise(edges)) >= min(edges[1], edges[-1] - edges[1]) - 1
    tally = schedule_files.Tally(framing=flow_drawing.Framing(1500), burst=burst)
    for number in range(30):  # each begins where a period does, and none is taken for the end of the one before
        tally.add(number * period_s, 10_000)
    assert tally.profile() == pytest.approx([period_s / width_s, *[0.0] * (phases - 1)])


def test_regular_gaps_are_nearly_regular_and_exponential_ones_are_not():
    def spread(arrivals):
        starts = [at for at, _, _ in flow_drawing.drawn(spec(arrivals=arrivals, duration_s=4.0))]
        gaps = [b - a for a, b in itertools.pairwise(starts)]
        mean = sum(gaps) / len(gaps)
        return (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5 / mean

    assert spread("poisson") == pytest.approx(1.0, abs=0.1)
    assert spread("poisson-gaps") < 0.06


def test_headers_of_small_flows_are_counted():
    smallest = flow_drawing.Framing(1500).wire_bytes(1)
    assert smallest == 16 + 66 + 74 + 3 * 66
    assert flow_drawing.Framing(1500).wire_bytes(1448) == 1514 + 272
    assert flow_drawing.Framing(1500).wire_bytes(1449) == 1514 + 67 + 272


@pytest.mark.parametrize("wire", [400, 1786, 1787, 1900, 5000, 123_456])
def test_a_flow_of_a_wanted_length_on_the_wire_has_it(wire):
    size = flow_drawing.Framing(1500).size_on_wire(wire)
    assert abs(flow_drawing.Framing(1500).wire_bytes(size) - wire) <= 66


def test_a_schedule_without_end_is_drawn_in_constant_memory():
    made = drawn_schedules.stream_spec(
        distributions.Distribution(name="small", source="", points=((100.0, 1.0),)), load_bps=50e6, mtu=1500, seed=1
    )
    flows = flow_drawing.drawn(made)
    next(flows)
    tracemalloc.start()
    count = sum(1 for _ in itertools.islice(flows, 60_000))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 60_000
    assert peak < 10e6


def test_a_recorded_schedule_begins_again(tmp_path):
    path = tmp_path / "flows.csv"
    path.write_text("0,1000,0\n500000000,20,1\n")
    flows = list(itertools.islice(flow_drawing.recorded(str(path), 0.01, 2.0), 5))
    assert flows == [
        (0, 10, 0),
        (500_000_000, 1, 1),
        (2_000_000_000, 10, 0),
        (2_500_000_000, 1, 1),
        (4_000_000_000, 10, 0),
    ]
    assert len(list(flow_drawing.recorded(str(path), 1.0, None))) == 2


def loads(seconds, *, arrivals, every_s, load_bps=3.63e9):
    """Relative standard deviation of the bytes that start in pieces of a schedule of web search, unscaled."""
    made = drawn_schedules.stream_spec(
        distributions.find("websearch"), load_bps=load_bps, mtu=1500, seed=11, arrivals=arrivals, duration_s=seconds
    )
    at, sizes, _ = (np.array(one) for one in zip(*flow_drawing.drawn(made), strict=True))
    pieces = np.bincount((at // round(every_s * 1e9)).astype(int), sizes)[: int(seconds / every_s)]
    return float(pieces.std(ddof=1) / pieces.mean()), float(sizes.sum() * 8 / seconds / load_bps)


@pytest.mark.parametrize(("every_s", "expected"), [(2.0, 0.108), (8.0, 0.054)])
def test_a_compound_poisson_process_varies_as_one_and_a_steered_one_does_not(every_s, expected):
    varies, mean = loads(800.0, arrivals="compound-poisson", every_s=every_s)
    assert varies == pytest.approx(expected, rel=0.2)
    assert mean == pytest.approx(0.954, rel=0.02)  # headers, opening and closing are the rest
    assert loads(200.0, arrivals="poisson", every_s=every_s)[0] < 0.006


def test_bursts_are_no_compound_poisson_process():
    with pytest.raises(ConfigError, match="no compound Poisson process"):
        drawn_schedules.stream_spec(
            distributions.find("websearch"),
            load_bps=1e9,
            mtu=1500,
            seed=1,
            arrivals="compound-poisson",
            burst=schedule_files.BurstShape(width_s=0.001, period_s=0.01, height=3.0),
        )


@pytest.mark.parametrize("load_bps", [4e9, 20e9])
def test_no_flow_of_a_schedule_is_larger_than_what_a_period_holds(load_bps):
    burst = schedule_files.BurstShape(width_s=0.001, period_s=0.01, height=3.0)
    made = drawn_schedules.stream_spec(
        distributions.find("websearch"), load_bps=load_bps, mtu=1500, seed=2, burst=burst, duration_s=20.0
    )
    largest = flow_drawing.largest_bytes(made)
    drawn = max(size for _, size, _ in flow_drawing.drawn(made))
    assert 0.5 * largest < drawn <= largest < 30e6
    assert flow_drawing.largest_bytes({**made, "burst": None}) == 30e6
