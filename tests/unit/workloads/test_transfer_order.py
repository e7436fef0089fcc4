"""TicTac's algorithms on graphs whose best order is known, and their rule against every order of small graphs."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.models import catalog
from workloads.rank.torch.transfer_order import Op, chain, tac, tic

SECONDS = st.integers(1, 20).map(float)


def op(*after: int, needs: tuple[int, ...] = (), seconds: float = 0.0) -> Op:
    return Op(after=after, transfers=frozenset(needs), seconds=seconds)


def makespan(graph: list[Op], takes: dict[int, float], order: tuple[int, ...] | list[int]) -> float:
    """When the last operation has ended: one transfer at a time in this order, one operation at a time as each can."""
    arrived, now = {}, 0.0
    for transfer in order:
        now = arrived[transfer] = now + takes[transfer]
    ended: dict[int, float] = {}
    free = 0.0
    while len(ended) < len(graph):
        ready = [
            (max([free, *(arrived[t] for t in one.transfers), *(ended[before] for before in one.after)]), place)
            for place, one in enumerate(graph)
            if place not in ended and all(before in ended for before in one.after)
        ]
        begin, place = min(ready)
        free = ended[place] = begin + graph[place].seconds
    return free


# The first example of the paper: what the first operation needs is to come first.
TOY = [op(needs=(0,), seconds=1.0), op(0, needs=(1,), seconds=1.0)]


def test_the_toy_graph_of_the_paper() -> None:
    takes = {0: 1.0, 1: 1.0}
    assert tac(TOY, takes) == tic(TOY) == [0, 1]
    assert makespan(TOY, takes, [0, 1]) == 3.0
    assert makespan(TOY, takes, [1, 0]) == 4.0


@pytest.mark.parametrize(
    ("m_a", "p_a", "m_b", "p_b", "first"),
    # Case 1: each transfer has an operation of its own. min(P_B, M_A) < min(P_A, M_B): A first.
    [(1, 5, 3, 2, 0), (3, 2, 1, 5, 1), (4, 1, 4, 3, 1), (2, 9, 3, 9, 0), (3, 9, 2, 9, 1)],
)
def test_case_1_two_transfers_with_an_operation_each(m_a: int, p_a: int, m_b: int, p_b: int, first: int) -> None:
    graph = [op(needs=(0,), seconds=p_a), op(needs=(1,), seconds=p_b), op(0, 1)]
    takes = {0: float(m_a), 1: float(m_b)}
    assert tac(graph, takes) == [first, 1 - first]
    assert makespan(graph, takes, [first, 1 - first]) < makespan(graph, takes, [1 - first, first])


def test_case_2_transfers_that_are_only_needed_together() -> None:
    """No operation waits for one transfer alone, so the lesser M+ decides: C and D take 3 together, A and B 8."""
    graph = [op(needs=(0, 1), seconds=1.0), op(needs=(2, 3), seconds=1.0), op(0, 1)]
    takes = {0: 4.0, 1: 4.0, 2: 1.0, 3: 2.0}
    assert tac(graph, takes)[:2] == [2, 3]
    # Without times both pairs are alike, and an operation that comes earlier decides.
    assert tic(graph) == [0, 1, 2, 3]


def test_tic_counts_transfers_and_tac_weighs_them() -> None:
    """An operation that needs one small and two others: TIC takes the pair first, TAC the three that take less."""
    graph = [op(needs=(0, 1, 2), seconds=1.0), op(needs=(3, 4), seconds=1.0), op(0, 1)]
    assert tic(graph) == [3, 4, 0, 1, 2]
    assert tac(graph, {0: 1.0, 1: 1.0, 2: 1.0, 3: 5.0, 4: 5.0}) == [0, 1, 2, 3, 4]


def test_a_transfer_that_frees_long_computing_goes_before_one_that_frees_little() -> None:
    """Two branches: the layer order of the list would begin with the branch that hides nothing."""
    graph = [op(needs=(0,), seconds=1.0), op(needs=(1,), seconds=10.0), op(0, 1)]
    takes = {0: 8.0, 1: 2.0}
    assert tac(graph, takes) == [1, 0]
    assert makespan(graph, takes, [1, 0]) == 13.0
    assert makespan(graph, takes, [0, 1]) == 20.0


@given(st.lists(st.tuples(st.sets(st.integers(0, 7), max_size=3), SECONDS), min_size=1, max_size=8), st.data())
def test_of_a_chain_both_give_the_order_in_which_layers_need_them(layers, data) -> None:
    """Every order of a chain that goes by first need ends as early as any, and theirs is one of these."""
    graph = chain(layers)
    numbers = sorted(set().union(*(needs for needs, _ in layers)))
    takes = {number: data.draw(SECONDS) for number in numbers}
    first = {n: next(place for place, (needs, _) in enumerate(layers) if n in needs) for n in numbers}
    for order in (tic(graph), tac(graph, takes)):
        assert sorted(order) == numbers
        assert [first[n] for n in order] == sorted(first.values())


@given(st.lists(st.tuples(SECONDS, SECONDS), min_size=2, max_size=5))
def test_of_branches_with_a_transfer_each_no_order_is_shorter_than_tac(branches) -> None:
    """Johnson's problem of two machines, whose rule TAC's is: the shortest of all orders."""
    graph = [op(needs=(number,), seconds=seconds) for number, (_, seconds) in enumerate(branches)]
    takes = {number: took for number, (took, _) in enumerate(branches)}
    best = min(makespan(graph, takes, order) for order in permutations(takes))
    assert makespan(graph, takes, tac(graph, takes)) == best


@given(
    st.lists(
        st.tuples(st.sets(st.integers(0, 5), max_size=2), SECONDS, st.sets(st.integers(0, 6), max_size=3)),
        min_size=1,
        max_size=7,
    ),
    st.data(),
)
def test_of_any_graph_each_transfer_has_one_place(drawn, data) -> None:
    graph = [
        Op(after=tuple(before for before in after if before < place), transfers=frozenset(needs), seconds=seconds)
        for place, (needs, seconds, after) in enumerate(drawn)
    ]
    numbers = sorted(set().union(*(needs for needs, _, _ in drawn)))
    takes = {number: data.draw(SECONDS) for number in numbers}
    assert sorted(tic(graph)) == sorted(tac(graph, takes)) == numbers


def test_of_inception_both_differ_from_the_layers_and_end_as_early() -> None:
    """Within a module any branch may come first, but no module begins before the one before it has ended."""
    model = catalog.load("inception_v3")
    assert model.after is not None
    graph = [
        Op(after=after, transfers=frozenset([place]), seconds=layer.flops / 1e11)
        for place, (layer, after) in enumerate(zip(model.layers, model.after, strict=True))
    ]
    takes = {place: sum(layer.sizes) * 4 / 0.6e9 for place, layer in enumerate(model.layers)}
    layers = list(takes)
    by_tic, by_tac = tic(graph), tac(graph, takes)
    assert by_tic != layers != by_tac != by_tic
    shortest = makespan(graph, takes, layers)
    assert makespan(graph, takes, by_tic) == pytest.approx(shortest, rel=0.01)
    assert makespan(graph, takes, by_tac) == pytest.approx(shortest, rel=0.01)
    assert makespan(graph, takes, layers[::-1]) > 1.4 * shortest


def test_a_graph_out_of_order_is_refused() -> None:
    with pytest.raises(ValueError, match="operation 0 takes results"):
        tic([op(1, needs=(0,)), op(needs=(1,))])
