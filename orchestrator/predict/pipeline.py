"""Predict an iteration of a model that is split by stage, tensor and replica (Li, equations 1 to 6).

A 1F1B schedule is carried out on paper: when each stage computes, receives, waits and reduces.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from orchestrator.parts.terms import Terms
from orchestrator.parts.theory import Pipelined, StageWork
from orchestrator.predict.network_costs import Network, Rates, all_reduce_s, sends_s
from workloads.rank.torch.parallel import one_forward_one_backward

ITERATIONS = 3  # the last of them has the period of all that follow

_REDUCE, _TABLE = "reduce", "table"

Pass = tuple[int, str, int]  # iteration, what is done, micro-batch


def terms(work: Pipelined, net: Network, rates: Rates) -> list[Terms]:
    """Return the terms of a rank of each stage.

    Where the paper has one micro-batch's time for all stages, each has its own here: the last stage projects on words,
    the first one looks them up, blocks may not divide evenly. Groups of all stages and replicas share links as they
    are placed.
    """
    one_s = all_reduce_s(work.tensor_groups, work.activation, net=net, rates=rates)
    embedding_s = all_reduce_s(work.ends, work.embedding, net=net, rates=rates)
    last = len(work.stages) - 1
    times = [
        StageTimes(
            forward_s=own.forward_s + own.forward_pieces * rates.piece_s + own.forward_all_reduces * one_s,
            backward_s=own.backward_s + own.backward_pieces * rates.piece_s + own.backward_all_reduces * one_s,
            send_s=_send_s(work, number, net, rates) if number < last else 0.0,
            data_s=all_reduce_s(work.data_groups, own.gradients, net=net, rates=rates),
        )
        for number, own in enumerate(work.stages)
    ]
    schedule = Schedule(times, microbatches=work.microbatches, embedding_s=embedding_s, step_s=rates.step_s)
    return [
        Terms(
            compute_s=work.microbatches * (own.forward_s + own.backward_s + _pieces(own) * rates.piece_s),
            tensor_s=work.microbatches * (own.forward_all_reduces + own.backward_all_reduces) * one_s,
            pipeline_s=course.received_s,
            data_s=one.data_s,
            embedding_s=embedding_s if last and number in (0, last) else 0.0,
            bubble_s=course.waited_s,
            other_s=rates.step_s,
        )
        for number, (own, one, course) in enumerate(zip(work.stages, times, schedule.courses(), strict=True))
    ]


def _pieces(own: StageWork) -> int:
    return own.forward_pieces + own.backward_pieces


def _send_s(work: Pipelined, number: int, net: Network, rates: Rates) -> float:
    """Return the seconds in which an activation passes from a stage to the next one, on all lines at once."""
    ways = [(line[number], line[number + 1]) for line in work.lines]
    return sends_s(ways, work.activation, net=net, rates=rates)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTimes:
    """Seconds of a rank of one stage: a micro-batch's passes, all-reduces of activations included, and its gradients.

    `send_s` is what an activation takes to the next stage, and its gradient back.
    """

    forward_s: float
    backward_s: float
    send_s: float
    data_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """A stage in the last iteration: its duration, and how long the stage received and waited, in seconds."""

    period_s: float
    received_s: float
    waited_s: float


@dataclass(slots=True)
class _Stage:
    """The state of a stage while the schedule is simulated."""

    todo: deque[Pass]
    now_s: float = 0.0
    outgoing: deque[tuple[int, Pass, float]] = field(default_factory=deque)  # to which stage, what, since when
    delivered_s: float = 0.0  # when its last message had arrived
    began_s: list[float] = field(default_factory=lambda: [0.0])  # its iterations
    received_s: float = 0.0
    waited_s: float = 0.0


class Schedule:
    """All stages of one line; the others do the same at the same time.

    A message moves when both ends are there: the sender's pass has ended and its message before has arrived, and the
    receiver waits for it. The receiver does nothing else meanwhile; the sender goes on.
    """

    def __init__(self, times: Sequence[StageTimes], *, microbatches: int, embedding_s: float, step_s: float) -> None:
        self._times = times
        self._embedding_s = embedding_s
        self._step_s = step_s
        count = len(times)
        self._stages = [_Stage(deque(_passes(number, count, microbatches))) for number in range(count)]

    def courses(self) -> list[Course]:
        """Simulate the schedule, and return each stage's last iteration."""
        while any(stage.todo for stage in self._stages):
            if not sum(map(self._advance, range(len(self._stages)))):
                raise AssertionError("1F1B has no cycle")
        return [
            Course(period_s=stage.began_s[-1] - stage.began_s[-2], received_s=stage.received_s, waited_s=stage.waited_s)
            for stage in self._stages
        ]

    def _advance(self, number: int) -> bool:
        """Let a stage do its next action; return whether it could."""
        stage = self._stages[number]
        if not stage.todo:
            return False
        iteration, kind, microbatch = stage.todo[0]
        if kind == _REDUCE:
            return self._reduce(number)
        if kind == _TABLE:
            return self._add_tables()
        forward = kind == "forward"
        if not self._receive(number, number - 1 if forward else number + 1):
            return False
        stage.now_s += self._times[number].forward_s if forward else self._times[number].backward_s
        to = number + 1 if forward else number - 1
        if 0 <= to < len(self._stages):
            stage.outgoing.append((to, (iteration, kind, microbatch), stage.now_s))
        stage.todo.popleft()
        return True

    def _receive(self, number: int, peer: int) -> bool:
        """Wait for the input of the next pass, where it has one; return whether it is on its way."""
        if not 0 <= peer < len(self._stages):
            return True
        stage, sender = self._stages[number], self._stages[peer]
        if not sender.outgoing or sender.outgoing[0][:2] != (number, stage.todo[0]):
            return False
        _, _, since_s = sender.outgoing.popleft()
        begin_s = max(stage.now_s, since_s, sender.delivered_s)
        send_s = self._times[min(number, peer)].send_s
        stage.waited_s += begin_s - stage.now_s
        stage.received_s += send_s
        stage.now_s = sender.delivered_s = begin_s + send_s
        return True

    def _reduce(self, number: int) -> bool:
        """Reduce all gradients over replicas, once all messages of the stage have arrived."""
        stage = self._stages[number]
        if stage.outgoing:
            return False
        begin_s = max(stage.now_s, stage.delivered_s)
        stage.waited_s += begin_s - stage.now_s
        stage.now_s = begin_s + self._times[number].data_s
        stage.todo.popleft()
        if number not in self._ends():
            self._end_iteration(stage)
        return True

    def _add_tables(self) -> bool:
        """Reduce the embedding table's gradients over first and last stage, once both have arrived there."""
        ends = [self._stages[place] for place in self._ends()]
        if any(not stage.todo or stage.todo[0][1] != _TABLE for stage in ends):
            return False
        together_s = max(stage.now_s for stage in ends)
        for stage in ends:
            stage.waited_s += together_s - stage.now_s
            stage.now_s = together_s + self._embedding_s
            stage.todo.popleft()
            self._end_iteration(stage)
        return True

    def _ends(self) -> tuple[int, ...]:
        return (0, len(self._stages) - 1) if len(self._stages) > 1 else ()

    def _end_iteration(self, stage: _Stage) -> None:
        stage.now_s += self._step_s
        stage.began_s.append(stage.now_s)
        if stage.todo:
            stage.received_s = stage.waited_s = 0.0


def _passes(number: int, count: int, microbatches: int) -> Iterator[Pass]:
    for iteration in range(ITERATIONS):
        for kind, microbatch in one_forward_one_backward(number, count, microbatches):
            yield iteration, kind, microbatch
        yield iteration, _REDUCE, 0
        if count > 1 and number in (0, count - 1):
            yield iteration, _TABLE, 0
