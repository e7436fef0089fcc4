"""An iteration of a model that is split by stage, tensor and replica (Li, equations 1 to 6, stage by stage)."""

from __future__ import annotations

from orchestrator.parts.terms import Terms
from orchestrator.parts.work import Pipelined, StageWork
from orchestrator.predict.network_costs import Network, Rates, all_reduce_s, sends_s
from orchestrator.predict.pipeline_schedule import Schedule, StageTimes


def terms(work: Pipelined, net: Network, rates: Rates) -> list[Terms]:
    """Terms of a rank of each stage.

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
    """An activation from a stage to the next one, on all lines at once."""
    ways = [(line[number], line[number + 1]) for line in work.lines]
    return sends_s(ways, work.activation, net=net, rates=rates)
