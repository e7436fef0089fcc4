from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cross_traffic import distributions, drawn_schedules, schedule_files
from cross_traffic.agents import flow_drawing
from cross_traffic.schedule_files import BurstShape
from orchestrator.core.errors import ConfigError

MTU = 1500

names = st.sampled_from(distributions.known())


@st.composite
def tables(draw):
    """Points of any distribution: sizes and probabilities that never fall, the last one 1, some size above 0."""
    sizes = sorted(draw(st.lists(st.integers(0, 10**7), min_size=1, max_size=8)))
    shares = sorted(draw(st.lists(st.floats(0, 1), min_size=len(sizes) - 1, max_size=len(sizes) - 1)))
    sizes[-1] = max(sizes[-1], 1)
    return distributions.Distribution(
        name="any", source="", points=tuple(zip(map(float, sizes), [*shares, 1.0], strict=True))
    )


def wire(flows):
    return sum(flow_drawing.Framing(MTU).wire_bytes(size) for _, size, _ in flows)


@given(tables())
def test_the_mean_is_that_of_what_is_drawn(distribution):
    sizes = flow_drawing.Sizes(distribution.points)
    steps = 4000
    drawn = [sizes.at((i + 0.5) / steps) for i in range(steps)]
    widest = max(high - low for low, high in itertools.pairwise([0.0, *sizes.bytes]))
    assert sum(drawn) / steps == pytest.approx(sizes.mean(), rel=0.01, abs=1 + widest * len(sizes.bytes) / steps)
    on_wire = sum(flow_drawing.Framing(MTU).wire_bytes(size) for size in drawn) / steps
    assert on_wire == pytest.approx(
        sizes.mean_wire(flow_drawing.Framing(MTU)), rel=0.01, abs=2 + 1.1 * widest * len(sizes.bytes) / steps
    )


@given(tables(), st.floats(0, 1, exclude_max=True), st.floats(0, 1, exclude_max=True))
def test_sizes_never_fall_with_the_share_and_stay_within_the_table(distribution, one, other):
    sizes = flow_drawing.Sizes(distribution.points)
    low, high = sorted((one, other))
    assert 1 <= sizes.at(low) <= sizes.at(high) <= max(1, distribution.points[-1][0])


@settings(max_examples=8, deadline=None)
@given(names, st.sampled_from([1, 10, 100]), st.floats(5e9, 24e9), st.integers(0, 2**31), st.booleans())
def test_a_schedule_carries_what_is_asked_for(name, scale, load, seed, regular):
    """Within half a per cent over 30 s, tails and headers included."""
    made = drawn_schedules.stream_spec(
        distributions.find(name),
        load_bps=load / scale / 10,
        mtu=MTU,
        seed=seed,
        factor=1 / scale / 10,
        arrivals="poisson-gaps" if regular else "poisson",
        duration_s=30.0,
    )
    flows = list(itertools.islice(flow_drawing.drawn(made), 60_000))
    if len(flows) == 60_000:  # of a part of it, as much as that part is long
        seconds = flows[-1][0] / 1e9
        assert wire(flows) * 8 / seconds == pytest.approx(load / scale / 10, rel=0.03)
    else:
        assert wire(flows) * 8 / 30 == pytest.approx(load / scale / 10, rel=0.005)
    assert all(0 <= a[0] <= b[0] < 30e9 for a, b in itertools.pairwise(flows))


@settings(max_examples=20, deadline=None)
@given(
    st.floats(8e9, 24e9), st.floats(4e-4, 3e-3), st.tuples(st.floats(2.5, 20), st.floats(1, 10)), st.integers(0, 2**31)
)
def test_bursts_carry_their_share_and_nothing_is_lost(load, width, shares, seed):
    periods, height = shares[0], min(shares[1], 0.9 * shares[0])
    period, scale, count = width * periods, 10, 100
    made = drawn_schedules.stream_spec(
        distributions.find("websearch"),
        load_bps=load / scale,
        mtu=MTU,
        seed=seed,
        factor=1 / scale,
        burst=BurstShape(width_s=width, period_s=period, height=height),
        duration_s=count * period,
    )
    flows = list(flow_drawing.drawn(made))
    inside = [flow for flow in flows if flow[0] / 1e9 % period < width * (1 - 1e-6)]
    assert len(inside) == pytest.approx(2 * count, abs=2)
    asked = load / scale / 8 * count * period
    assert wire(flows) == pytest.approx(asked, rel=0.005)
    assert wire(inside) == pytest.approx(asked * height * width / period, rel=0.02)


@given(st.floats(1e-3, 1e6), st.integers(0, 2**31))
@settings(max_examples=50, deadline=None)
def test_poisson_numbers_have_their_mean_and_variance(mean, seed):
    source = random.Random(seed)  # noqa: S311
    drawn = [flow_drawing.poisson(source, mean) for _ in range(400)]
    average = sum(drawn) / len(drawn)
    assert abs(average - mean) < 5 * (mean / 400) ** 0.5 + 0.01
    if mean > 1:
        assert sum((one - mean) ** 2 for one in drawn) / 400 == pytest.approx(mean, rel=0.6)


@given(names, st.integers(0, 2**31))
@settings(max_examples=10, deadline=None)
def test_the_same_seed_gives_the_same_schedule_and_another_seed_another(name, seed):
    def first(number):
        made = drawn_schedules.stream_spec(distributions.find(name), load_bps=1e8, mtu=MTU, seed=number, factor=0.01)
        return list(itertools.islice(flow_drawing.drawn(made), 50))

    one = first(seed)
    assert one == first(seed)
    assert one != first(seed + 1)


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(1, 10**12)), min_size=1, max_size=20))
def test_a_schedule_file_comes_back_as_it_was_written(tmp_path_factory, flows):
    lines = [schedule_files.FlowLine(start_s=round(at, 9), size=size, to="h1") for at, size in sorted(flows)]
    path = tmp_path_factory.mktemp("schedule") / "flows.csv"
    assert schedule_files.write_schedule(path, lines, comment="a comment\nof two lines") == len(lines)
    assert list(schedule_files.read_schedule(path)) == lines


@given(st.binary(max_size=300))
@settings(max_examples=200)
def test_no_file_makes_more_than_one_clear_error(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("bad") / "any.csv"
    path.write_bytes(content)
    for read in (distributions.load, lambda file: list(schedule_files.read_schedule(file))):
        told = ""
        try:
            read(path)
        except ConfigError as error:
            told = error.message
        assert told == "" or str(path) in told
