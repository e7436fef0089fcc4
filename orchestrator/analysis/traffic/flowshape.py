"""Tells training, cross traffic, SSH and the rest apart by how flows behave, where nobody said what was launched."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from orchestrator.analysis.traffic import periodicity, traffic
from orchestrator.analysis.traffic.traffic import CONTROL, CROSS, OTHER, TRAINING, Floats, Mask, Traffic

SSH_PORT = 22
BIG = 0.01  # of the bytes of the biggest flow: smaller ones are not judged by their shape
FLOOD = 0.05  # of the same: from which on small flows of one pair of hosts are big together
SWINGS = 0.5  # coefficient of variation within a period; what only yields to a training swings with it, but less
LIVES = 0.5  # of the trace: a training's flow is there for most of it
SAME = 0.1  # by which periods of one training may differ
_MOST_FLOWS = 400
_STEPS = 20_000  # bins of a flow's series


def told_apart(found: Traffic) -> Traffic:
    """The traffic with `kind` and `name` by shape.

    SSH by its port. Of the big flows those are training that live for most of the trace and repeat themselves with
    one period, swinging between much and little: the period under which most bytes do so. Big flows without it are
    cross traffic: transfers and floods have no beat. A training that never pauses looks like cross traffic. Small
    flows among a training's hosts are its side connections (control); the rest is other.
    """
    kind = np.full(len(found), OTHER, object)
    name = np.full(len(found), "", object)
    ssh = (found.src_port == SSH_PORT) | (found.dst_port == SSH_PORT)
    kind[ssh], name[ssh] = CONTROL, "ssh"
    big = _big(found) & ~ssh
    training = _beating(found, big)
    # What the receiver of a training's flow sends back is mostly acknowledgements, on the same connection.
    kind[_same_connection(found, training) & ~ssh] = TRAINING
    kind[(kind == OTHER) & _same_connection(found, big)] = CROSS
    hosts = np.union1d(found.src[training], found.dst[training])
    side = (kind == OTHER) & np.isin(found.src, hosts) & np.isin(found.dst, hosts) & (found.src_port > 0)
    kind[side], name[side] = CONTROL, "side connection"
    return replace(found, kind=kind, name=name, guessed=True)


def _big(found: Traffic) -> Mask:
    sizes = found.payload_bytes
    if not len(sizes) or sizes.max() <= 0:
        return np.zeros(len(sizes), bool)
    big = sizes >= BIG * sizes.max()
    pair = found.src * len(found.hosts) + found.dst
    together = np.bincount(pair, np.where(big, 0, sizes))[pair]
    flood: Mask = big | ((together >= FLOOD * sizes.max()) & (sizes > 0))
    return flood


def _beating(found: Traffic, big: Mask) -> Mask:
    """Which of the big flows repeat themselves with the period that most bytes share."""
    chosen = np.zeros(len(found), bool)
    length = found.end_ns - found.begin_ns
    lives = found.last_ns - found.first_ns >= LIVES * length
    rows = np.flatnonzero(big & lives)
    rows = rows[np.argsort(-found.payload_bytes[rows])][:_MOST_FLOWS]
    width = max(1, round(length / found.width_ns / _STEPS)) * found.width_ns
    periods = {}
    for row in rows.tolist():
        mine = np.zeros(len(found), bool)
        mine[row] = True
        values = traffic.series(found, mine, payload=True, width_ns=width)
        beat = periodicity.period(values, width / 1e9)
        if beat.found and _swing(values, beat.period_s * 1e9 / width) >= SWINGS:
            periods[row] = beat
    if not periods:
        return chosen
    weight = {row: found.payload_bytes[row] * beat.strength for row, beat in periods.items()}

    def alike(one: float, other: float) -> bool:
        return abs(one - other) <= SAME * other

    best = max(
        periods,
        key=lambda row: sum(
            weight[other] for other, beat in periods.items() if alike(beat.period_s, periods[row].period_s)
        ),
    )
    beat_s = periods[best].period_s
    # A flow may show twice or half of it, where every second iteration differs or one has two bursts.
    chosen[[row for row, beat in periods.items() if any(alike(beat.period_s, beat_s * f) for f in (1, 2, 0.5))]] = True
    return chosen


def _swing(values: Floats, lag: float) -> float:
    """Coefficient of variation of a series in bins of a tenth of `lag`, over the time in which the flow lives."""
    places = np.flatnonzero(values)
    lived = values[places[0] : places[-1] + 1]
    join = max(1, round(lag / 10))
    joined = lived[: len(lived) // join * join].reshape(-1, join).sum(axis=1)
    return float(joined.std() / joined.mean()) if len(joined) and joined.mean() > 0 else 0.0


def _same_connection(found: Traffic, flows: Mask) -> Mask:
    """Flows with the same two ends as some flows, in either direction."""
    ends = np.stack((found.src * 65536 + found.src_port, found.dst * 65536 + found.dst_port))
    number = np.unique(ends, return_inverse=True)[1].reshape(ends.shape)
    connection = number.min(axis=0) * (number.max(initial=0) + 1) + number.max(axis=0)
    return np.isin(connection, connection[flows])
