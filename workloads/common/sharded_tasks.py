"""Tasks of a model whose parameters are divided among ranks: each unit is gathered before ranks compute with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orchestrator.parts.taskgraph import TaskGraph
from workloads.common import collective_tasks

Unit = tuple[int, float, float]  # bytes, each parameter padded to equal shards; seconds of its forward, backward pass


def sharded(world: int, units: Sequence[Unit], *, again: bool, whole: bool, passes: int = 1) -> TaskGraph:
    """Return an iteration: gathers and reduce-scatters, each of which blocks its rank; compute goes on meanwhile.

    Layers end at their instants since the pass began, or once they are gathered. Units are gathered `again` for the
    backward pass where they were freed; a reduce-scatter reduces the `whole` as gloo's does, of which each rank keeps
    its share.
    """
    everyone = range(world)
    graph = TaskGraph(ranks=world)

    def gathered(size: int, last: Mapping[int, int]) -> dict[int, int]:
        done = collective_tasks.ring_pass(graph, everyone, size, {rank: (last[rank],) for rank in everyone}, step=1)
        return {rank: graph.join(rank, (last[rank], *done[rank])) for rank in everyone}

    def computed(at_s: float, began: Mapping[int, int], last: Mapping[int, int]) -> dict[int, int]:
        return {rank: graph.join(rank, (last[rank], graph.compute(rank, at_s, (began[rank],)))) for rank in everyone}

    last: dict[int, int] = dict(enumerate(graph.begins))
    for _ in range(passes):
        began, at_s = last, 0.0
        for size, forward_s, _ in units:
            at_s += forward_s
            last = computed(at_s, began, gathered(size, last))
        began, at_s = last, 0.0
        for size, _, backward_s in reversed(units):
            at_s += backward_s
            last = computed(at_s, began, gathered(size, last) if again else last)
            ready = {rank: (last[rank],) for rank in everyone}
            if whole:
                done = collective_tasks.ring_all_reduce(graph, everyone, size, ready)
            else:
                done = collective_tasks.ring_pass(graph, everyone, size, ready, step=1)
            last = {rank: graph.join(rank, done[rank]) for rank in everyone}
    graph.computing_s = [passes * sum(forward_s + backward_s for _, forward_s, backward_s in units)] * world
    graph.end([(last[rank],) for rank in everyone])
    return graph
