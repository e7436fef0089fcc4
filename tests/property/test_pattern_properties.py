from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.analysis.traffic.pattern import infer


def turned(order):
    """The same closed way, from the lowest host on."""
    place = order.index(min(order))
    return tuple(order[place:] + order[:place])


@settings(max_examples=120, deadline=None)
@given(
    order=st.integers(3, 24).flatmap(lambda n: st.permutations(range(n))),
    seed=st.integers(0, 2**32 - 1),
    noise=st.floats(0, 0.09),
    uneven=st.floats(0, 0.3),
    cross=st.integers(0, 1),
    strength=st.floats(0.1, 20),
)
def test_rings_are_recovered_under_noise_and_cross_traffic(  # noqa: PLR0917
    order, seed, noise, uneven, cross, strength
):
    """Noise on every pair up to 9 % of an edge, edges that differ by up to 30 %, and a pair with cross traffic."""
    count = len(order)
    random = np.random.default_rng(seed)
    matrix = random.uniform(0, noise, (count, count)) * 0.7
    for src, dst in zip(order, order[1:] + order[:1], strict=True):
        matrix[src, dst] += 1 - uneven * random.random()
    # In a ring of three or four one more strong edge is a large share of it: "unknown" is right there.
    if cross and count > 6:
        src, dst = random.choice(count, 2, replace=False)
        matrix[src, dst] += strength
    found = infer(matrix * 1e9)
    assert found.shape == "ring"
    assert found.hosts == turned(list(order))


SHAPES = {
    "star": lambda n: [(0, k) for k in range(1, n)],
    "chain": lambda n: [(k, k + 1) for k in range(n - 1)],
    "tree": lambda n: [((k - 1) // 2, k) for k in range(1, n)],
    "parameter servers": lambda n: [(s, w) for s in (0, 1) for w in range(2, n)],
    "full mesh": lambda n: [(a, b) for a in range(n) for b in range(a)],
}


@settings(max_examples=80, deadline=None)
@given(
    order=st.integers(6, 14).flatmap(lambda n: st.permutations(range(n))),
    shape=st.sampled_from(sorted(SHAPES)),
    seed=st.integers(0, 2**32 - 1),
    noise=st.floats(0, 0.05),
)
def test_shapes_are_recovered_under_noise_whoever_plays_which_part(order, shape, seed, noise):
    random = np.random.default_rng(seed)
    matrix = random.uniform(0, noise, (len(order), len(order)))
    for one, other in SHAPES[shape](len(order)):
        matrix[order[one], order[other]] += random.uniform(0.7, 1)
        matrix[order[other], order[one]] += random.uniform(0.7, 1)
    found = infer(matrix)
    assert found.shape == shape
    if shape in ("star", "parameter servers"):
        assert set(found.hosts[: found.heads]) == {order[k] for k in range(found.heads)}


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), count=st.integers(0, 9), factor=st.floats(1e-3, 1e12))
def test_scores_are_shares_and_units_do_not_matter(seed, count, factor):
    random = np.random.default_rng(seed)
    matrix = np.where(random.random((count, count)) < 0.5, 0, random.exponential(1.0, (count, count)))
    found = infer(matrix * factor)
    assert 0 <= found.score <= 1 + 1e-9
    assert 0 <= found.share <= 1 + 1e-9
    assert found.shape == infer(matrix).shape
