"""An iteration of data parallelism whose all-reduces overlap with the backward pass, as PyTorch DDP's do."""

from __future__ import annotations

from orchestrator.parts.terms import Terms
from orchestrator.parts.work import Replicated
from orchestrator.predict.network_costs import Network, Rates, all_reduced

AT_ONCE = 2  # threads of gloo's process group, each with one collective


def terms(work: Replicated, net: Network, rates: Rates) -> Terms:
    """Terms of any rank: all do the same.

    Buckets go through the network in the order in which they are ready. As many as AT_ONCE are under way, so that the
    rounds of one pass while another's bytes are on the links; the links of a rail carry one byte after the other, and
    of several rails each bucket takes the next. Whatever copies bytes does so for one bucket after the other.
    """
    everyone = [range(work.ranks)]
    done: list[float] = []
    free_s, copied_s = [0.0] * net.rails, 0.0
    busy_s, last_s = 0.0, 0.0
    for number, bucket in enumerate(work.buckets):
        one = all_reduced(everyone, bucket.size, net=net, rates=rates)
        begin_s = max(bucket.ready_s, done[number - AT_ONCE] if number >= AT_ONCE else 0.0)
        rail = number % net.rails
        there_s = max(begin_s + one.rounds_s, max(begin_s, free_s[rail]) + one.link_s)
        end_s = there_s
        if one.copies_s:
            end_s = copied_s = max(there_s, copied_s) + one.copies_s
        busy_s += max(0.0, end_s - max(begin_s, last_s))
        free_s[rail] = end_s
        last_s = max(last_s, end_s)
        done.append(end_s)
    exposed_s = max(0.0, last_s - work.backward_s)
    return Terms(
        compute_s=work.passes * (work.forward_s + work.backward_s),
        data_s=exposed_s,
        hidden_s=max(0.0, busy_s - exposed_s),
        other_s=rates.step_s,
    )
