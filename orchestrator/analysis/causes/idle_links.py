"""Name causes that show while the network is waited for and no queue is full: losses, delays, windows, small queues."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from orchestrator.analysis.causes.evidence import Cost, Evidence
from orchestrator.analysis.causes.ports import STEP_NS, Axis, Edge, Port
from orchestrator.analysis.causes.sharing import shared
from orchestrator.core.units import bytes_text, span_text

Floats = npt.NDArray[np.float64]

LOST = 0.005  # of the payload sent again: more is loss, less only what its time-outs cost
SILENCE_S = 0.15  # without any packet of the job: a retransmission time-out, or everybody stands still
DELAY_S = 0.0004  # beyond the usual of the other pairs
ROUNDS = 2  # a ring's chunk comes by each hop as often, in 2 (N - 1) steps of N ranks
LIMITED = 0.15  # of its busy time that a connection waits for the receiver's window, or the sender's buffer
UNREAD = 0.5  # of the time that the receiver's window held its sender up, in which its process left payload unread
LEFT = 0.5  # of the idle time in which a process leaves payload unread: it is what all wait for
OFTEN = 2.0  # times as often as processes of other hosts do
CHANCE = 0.001  # that so many samples of a process have payload to read, were they like those of all other hosts
RARELY = 0.05  # a process has payload to read that often at least
SMALL_WINDOW = 0.4  # of what other connections have in flight
SMALL_BYTES = 32_000  # a window that is never larger is small, whoever reads: Linux begins with 64 kB
SMALL_QUEUE_S = 0.0015  # a queue that drops when it is no longer than this is small
FEWEST_DROPS = 20
STRONG = 4.0  # times its limit: evidence that is stronger than this counts no more


def on_idle_links(evidence: Evidence) -> list[Cost]:
    """Return what losses, delays, windows and small queues cost; several share what they claim by their evidence."""
    found = [
        *_losses(evidence),
        *_delays(evidence),
        *_windows(evidence),
        *_slow_readers(evidence),
        *_small_queues(evidence),
    ]
    claims = np.array([cost.seconds for cost in found])
    given = shared(claims, np.array([min(cost.strength, STRONG) for cost in found]))
    return [replace(cost, seconds=seconds) for cost, seconds in zip(found, given, strict=True)]


def of_failed_links(evidence: Evidence) -> Iterator[Cost]:
    """Yield links of a fabric whose flows went another way for a time, by what the network took longer meanwhile."""
    found, network = evidence.passes, evidence.split.network
    begins, ends = (found.origin_ns + at * 1e9 for at in (found.start.min(axis=0), found.end.max(axis=0)))
    for links in dict.fromkeys(one.links for one in evidence.away):
        spans = [one for one in evidence.away if one.links == links]
        during = np.zeros(len(network), bool)
        for one in spans:
            during |= (ends > one.begin_ns) & (begins < one.end_ns)
        if during.any() and not during.all():
            lasted = sum(one.end_ns - one.begin_ns for one in spans) / 1e9
            yield Cost(
                cause="link-down",
                place=" or ".join(links),
                hosts=links,
                seconds=np.where(during, np.clip(network - np.median(network[~during]), 0, None), 0.0),
                of="network",
                evidence=(f"its flows went another way for {span_text(lasted)}, in {during.sum()} iterations",),
                strength=2.0,
            )


def _usual(values: Sequence[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return float(np.median(known)) if known else math.nan


def _others(edges: Sequence[Edge], mine: Sequence[Edge]) -> list[Edge]:
    return [edge for edge in edges if edge not in mine]


def _varying(evidence: Evidence) -> Floats:
    """Return the idle time of each iteration beyond what is usual: losses come and go."""
    return np.clip(evidence.idle - np.quantile(evidence.idle, 0.1), 0, None)


def _losses(evidence: Evidence) -> Iterator[Cost]:
    """Yield edges whose payload was sent again, and was not dropped by a queue that we see.

    The time without any packet is that of the edge that lost most, or timed out most often where none lost much; unless
    a full queue at either end drops: acknowledgements are lost there, too.
    """
    by_loss = sorted(
        ((_lost(evidence, edge), edge) for edge in evidence.edges),
        key=lambda one: (one[0][0], np.nan_to_num(one[1].timeouts)),
        reverse=True,
    )
    for place, ((lost, drops), edge) in enumerate(by_loss):
        silent = np.zeros(len(evidence.idle))
        dropping = any(port.drops > 0 for port in evidence.full if port.host in (edge.src, edge.dst))
        if place == 0 and edge.timeouts > 0 and (lost >= LOST or not dropping):
            silent = evidence.seconds(_silent(evidence))
        if lost < LOST and not silent.any():
            return
        cost = np.maximum(_varying(evidence), silent) if lost >= LOST else silent
        again = f"{edge.repeated:.1%} of what {edge.src} sent {edge.dst} was sent again"
        said = [f"{again}, and queues dropped {drops:.0f}"]
        if edge.timeouts > 0:
            said.append(f"its connections timed out {edge.timeouts:.0f} times")
        if silent.sum() > 0:
            said.append(
                f"for {span_text(float(silent.mean()))} an iteration no packet moved for {span_text(SILENCE_S)} or more"
            )
        yield Cost(
            cause="loss",
            place=f"packets from {edge.src} to {edge.dst}",
            hosts=(edge.dst, edge.src),
            seconds=np.minimum(cost, evidence.split.network),
            of="network",
            evidence=tuple(said),
            strength=max(lost / LOST, 1.0),
        )


def _lost(evidence: Evidence, edge: Edge) -> tuple[float, float]:
    """Return the share of an edge's payload that was lost elsewhere than in queues, and how many packets these dropped.

    Those of a fabric's uplinks may be of any edge, and count for each.
    """
    segments = edge.repeated_bytes / evidence.mtu
    drops = sum(
        port.drops
        for port in evidence.ports
        if (port.direction in ("up", "down") or (port.host, port.direction) in ((edge.src, "out"), (edge.dst, "in")))
        and not math.isnan(port.drops)
    )
    return (edge.repeated * max(0.0, 1 - drops / segments) if segments > 0 else 0.0), drops


def _silent(evidence: Evidence) -> Floats:
    """Return the exposed steps that are of a long time without any packet of the job."""
    known = [port.own for port in evidence.ports if port.own is not None]
    if not known:
        return np.zeros(evidence.axis.steps)
    moving = np.flatnonzero(np.sum(known, axis=0) > 0)
    found = np.zeros(evidence.axis.steps)
    for place in np.flatnonzero(np.diff(moving) * STEP_NS >= SILENCE_S * 1e9):
        found[moving[place] + 1 : moving[place + 1]] = 1
    return found


def _delays(evidence: Evidence) -> Iterator[Cost]:
    """Yield the host to and from which even the fastest packets take longer."""
    best: tuple[float, str, list[Edge]] = (0.0, "", [])
    for host in sorted({edge.dst for edge in evidence.edges}):
        mine = [edge for edge in evidence.edges if host in (edge.src, edge.dst)]
        more = _usual([edge.rtt_s for edge in mine]) - _usual([edge.rtt_s for edge in _others(evidence.edges, mine)])
        if more > best[0]:
            best = (more, host, mine)
    more, host, mine = best
    more -= sum(_queueing_s(evidence, port) for port in evidence.full if port.host == host)
    if more < DELAY_S:
        return
    cost = np.minimum(evidence.idle, ROUNDS * len(evidence.passes.collectives) * more)
    rtt = span_text(_usual([edge.rtt_s for edge in mine]))
    usual = span_text(_usual([edge.rtt_s for edge in _others(evidence.edges, mine)]))
    yield Cost(
        cause="delay",
        place=f"packets to {host}",
        hosts=(host,),
        seconds=cost,
        of="network",
        evidence=(f"the least round trip to and from {host} takes {rtt}, elsewhere {usual}",),
        strength=more / DELAY_S,
    )


def _queueing_s(evidence: Evidence, port: Port) -> float:
    """Return how long packets wait in a port's queue while it holds any, on average, at the rate at which it leaves."""
    queued = port.queued(evidence.mtu)
    if port.backlog is None or port.carried is None or not queued.any():
        return 0.0
    rate = float(port.carried[queued].mean()) * 8e9 / STEP_NS
    return float(port.backlog[queued].mean()) * 8 / rate if rate > 0 else 0.0


def _windows(evidence: Evidence) -> Iterator[Cost]:
    """Yield the connection that waits for the receiver's window or the sender's buffer.

    A receiver that leaves payload unread while its window holds the sender up does not read; one that reads has a small
    window, and so has one whose window was never large, whoever reads. Where its queue was not sampled, a window that
    stays as large as it is is a small one, and one that shrinks is filled by a receiver that does not read.
    """
    for edge in evidence.edges:
        least, most = edge.offered_bytes
        known = not math.isnan(edge.unread)
        unread = not most < SMALL_BYTES and (edge.unread >= UNREAD * edge.held if known else least < most / 2)
        for kind, cause, host in (
            ("rwnd", "slow-reader" if unread else "receive-window", edge.dst),
            ("sndbuf", "send-buffer", edge.src),
        ):
            share = edge.limited.get(kind, 0.0)
            if share >= LIMITED:
                what = "receiver's window" if kind == "rwnd" else "sender's buffer"
                said = [f"for {share:.0%} of its busy time it waited for the {what}"]
                if kind == "rwnd" and not math.isnan(most):
                    said.append(
                        f"which was between {bytes_text(least)} and {bytes_text(most)} while data was under way"
                    )
                if kind == "rwnd" and known:
                    said.append(f"its process had payload to read in {edge.unread:.0%} of the samples")
                yield Cost(
                    cause=cause,
                    place=f"{host}, on what {edge.src} sends {edge.dst}",
                    hosts=(host,),
                    seconds=np.minimum(evidence.idle, share * evidence.split.network),
                    of="network",
                    evidence=tuple(said),
                    strength=share / LIMITED,
                )
    if any(edge.limited for edge in evidence.edges):
        return
    for edge in evidence.edges:
        usual = _usual([other.window_segments for other in _others(evidence.edges, [edge])])
        if edge.window_segments <= SMALL_WINDOW * usual and edge.window_segments <= edge.cwnd_segments / 2:
            never = f"{edge.src} never had more than {edge.window_segments:.0f} segments on their way to {edge.dst}"
            yield Cost(
                cause="receive-window",
                place=f"{edge.dst}, on what {edge.src} sends {edge.dst}",
                hosts=(edge.dst,),
                seconds=np.clip(evidence.idle - np.quantile(evidence.idle, 0.1) / 2, 0, None),
                of="network",
                evidence=(never, f"others {usual:.0f}, and its congestion window is {edge.cwnd_segments:.0f}"),
                strength=SMALL_WINDOW * usual / max(edge.window_segments, 1.0),
            )


def _slow_readers(evidence: Evidence) -> Iterator[Cost]:
    """Yield receivers with payload to read in most of the time in which links are idle, which others seldom have.

    Their senders do not wait for a window: what they send fits into the receivers' buffers. What processes of other
    hosts leave unread likewise, by processors that all share, is no cost of theirs; where there is no other receiver
    none is called slow. Where threads of the host wait for its processors, these keep it from reading.
    """
    edges = [edge for edge in evidence.edges if edge.limited.get("rwnd", 0.0) < LIMITED]
    idle = evidence.axis.exposed * (1 - evidence.used())
    told = [_unread(edge, evidence.axis, idle) for edge in edges]
    for edge, (share, samples) in zip(edges, told, strict=True):
        if not share >= LEFT:
            continue
        others = [other for one, other in zip(edges, told, strict=True) if one.dst != edge.dst and other[1] > 0]
        usual = _usual([other for other, _ in others])
        if others and share >= OFTEN * usual and _chance(share, samples, others) <= CHANCE:
            said = f"while links were idle, its process had payload to read in {share:.0%} of the samples"
            crowded = evidence.crowded(edge.dst)
            yield Cost(
                cause="processor" if crowded else "slow-reader",
                place=edge.dst if crowded else f"{edge.dst}, on what {edge.src} sends {edge.dst}",
                hosts=(edge.dst,),
                seconds=evidence.idle * (share - usual),
                of="network",
                evidence=(*crowded, said, f"processes of other hosts in {usual:.0%}"),
                strength=share / max(usual, LIMITED),
            )


def _unread(edge: Edge, over: Axis, idle: Floats) -> tuple[float, float]:
    """Return in what share of the samples taken while links were idle a receiver had payload to read, and how many.

    A sample counts by the share of its step that is `idle`: in which the network was waited for and no link was used.
    The share is NaN of none.
    """
    at, left = over.of(edge.received[0]), edge.received[1]
    inside = (at >= 0) & (at < over.steps)
    weight = idle[at[inside]]
    total = float(weight.sum())
    return float((weight * left[inside]).sum()) / total if total > 0 else math.nan, total


def _chance(share: float, samples: float, others: Sequence[tuple[float, float]]) -> float:
    """Return how likely so large a share of so many samples is, at the mean rate of others (binomial tail)."""
    from scipy.special import bdtrc

    rate = max(RARELY, sum(other * count for other, count in others) / sum(count for _, count in others))
    count, found = round(samples), round(share * samples)
    return float(bdtrc(found - 1, count, rate)) if found else 1.0


def _small_queues(evidence: Evidence) -> Iterator[Cost]:
    """Yield the queue that drops packets though it is never long; one that is always full is not too small.

    So is that of a host's own device which took nothing of what TCP handed it while nothing else was under way: then
    the connection waits for the timer of closed windows (200 ms), which counts neither a loss nor a time-out.
    """
    for port in evidence.ports:
        if port.backlog is None or not port.drops > 0:
            continue
        longest_s = float(port.backlog.max()) * 8 / port.rate_bps
        short = longest_s <= SMALL_QUEUE_S and port.drops >= FEWEST_DROPS and port not in evidence.full
        stuck = evidence.seconds(_stuck(evidence, port) * (1 - evidence.used()))
        if not short and not stuck.any():
            continue
        said = [
            f"it dropped {port.drops:.0f} packets, and never held more than {span_text(longest_s)} of its link's rate"
        ]
        if stuck.any():
            said.append(
                f"for {span_text(float(stuck.mean()))} an iteration connections had payload to send and nothing under "
                "way: their own queue took nothing, and TCP waits for a timer of 200 ms that counts as no time-out"
            )
        yield Cost(
            cause="small-queue",
            place=port.name,
            hosts=(port.host,),
            seconds=np.minimum(np.maximum(_varying(evidence) if short else 0.0, stuck), evidence.split.network),
            of="network",
            evidence=tuple(said),
            strength=max(port.drops / FEWEST_DROPS, STRONG if stuck.any() else 0.0),
        )


def _stuck(evidence: Evidence, port: Port) -> Floats:
    """Return the steps in which a connection that sends by a port is stuck: by its own host's device alone."""
    found = np.zeros(evidence.axis.steps)
    if port.direction == "out":
        for edge in (edge for edge in evidence.edges if edge.src == port.host):
            for begin, end in zip(*(evidence.axis.of(side) for side in edge.stuck), strict=True):
                found[max(0, begin) : max(0, end)] = 1
    return found
