"""Tasks of a model that is split by pipeline stage, tensor and replica: 1F1B, with messages where it is split."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.parts.taskgraph import TaskGraph
from orchestrator.parts.theory import Pipelined, StageWork
from workloads.common import collective_tasks
from workloads.rank.torch.parallel import one_forward_one_backward


class _Ranks:
    """The last task of each rank while a graph is built, and the messages that it still sends."""

    def __init__(self, work: Pipelined) -> None:
        self.graph = TaskGraph(ranks=len(work.stage_of))
        self.last = list(self.graph.begins)
        self.sent: list[list[int]] = [[] for _ in self.last]

    def compute(self, members: Sequence[int], seconds: float, pieces: int) -> None:
        for rank in members:
            self.last[rank] = self.graph.compute(rank, seconds, (self.last[rank],), pieces=pieces)

    def reduce(self, members: Sequence[int], size: float) -> None:
        """All-reduce in a group, which all of its ranks wait for."""
        if len(members) < 2 or not size:
            return
        done = collective_tasks.ring_all_reduce(
            self.graph, members, size, {rank: (self.last[rank],) for rank in members}
        )
        for rank in members:
            self.last[rank] = self.graph.join(rank, (self.last[rank], *done[rank]))

    def receive(self, src: int, dst: int, sent: int, size: float) -> None:
        """Receive what a rank had ready to send since its task `sent`; the sender goes on meanwhile."""
        message = self.graph.send(src, dst, size, (sent, self.last[dst]))
        self.sent[src].append(message)
        self.last[dst] = self.graph.join(dst, (self.last[dst], message))


def pipelined(work: Pipelined) -> TaskGraph:
    """Return an iteration of all ranks, stage by stage as far as their inputs are there."""
    ranks = _Ranks(work)
    line_of = {rank: (line, place) for line in work.lines for place, rank in enumerate(line)}
    groups = [list(group) for group in work.tensor_groups]
    stages = len(work.stages)
    todo = {
        place: one_forward_one_backward(work.stage_of[group[0]], stages, work.microbatches)
        for place, group in enumerate(groups)
    }
    ready: dict[tuple[int, str, int], int] = {}  # by rank, pass and micro-batch: the task after which it sends
    while any(todo.values()):
        for place, group in enumerate(groups):
            stage = work.stage_of[group[0]]
            while todo[place]:
                kind, microbatch = todo[place][0]
                before = stage - 1 if kind == "forward" else stage + 1
                if 0 <= before < stages:
                    inputs = [(line_of[rank][0][before], kind, microbatch) for rank in group]
                    if any(one not in ready for one in inputs):
                        break
                    for rank, one in zip(group, inputs, strict=True):
                        ranks.receive(one[0], rank, ready[one], work.activation)
                _pass(ranks, group, work.stages[stage], kind, work.activation)
                ready |= {(rank, kind, microbatch): ranks.last[rank] for rank in group}
                todo[place] = todo[place][1:]
    for rank, sent in enumerate(ranks.sent):
        ranks.last[rank] = ranks.graph.join(rank, (ranks.last[rank], *sent))
    for members in work.data_groups:
        ranks.reduce(members, work.stages[work.stage_of[members[0]]].gradients)
    for members in work.ends:
        ranks.reduce(members, work.embedding)
    ranks.graph.end([(last,) for last in ranks.last])
    return ranks.graph


def _pass(ranks: _Ranks, group: Sequence[int], own: StageWork, kind: str, activation: float) -> None:
    """Add a pass of a micro-batch: its computing in as many parts as its group has all-reduces."""
    forward = kind == "forward"
    seconds, pieces, reduces = (
        (own.forward_s, own.forward_pieces, own.forward_all_reduces)
        if forward
        else (own.backward_s, own.backward_pieces, own.backward_all_reduces)
    )
    parts = max(1, reduces) if len(group) > 1 else 1
    for number in range(parts):
        ranks.compute(group, seconds / parts, pieces * (number + 1) // parts - pieces * number // parts)
        ranks.reduce(group, activation)
