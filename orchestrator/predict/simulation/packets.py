"""Simulate at the grain of packets: token-bucket queues as the testbed sets them, and TCP as Linux sends it.

Of TCP there are CUBIC with HyStart's train of acknowledgements (RFC 9438, net/ipv4/tcp_cubic.c), selective
acknowledgements with losses found by time (RACK, RFC 8985), the tail loss probe (ibid., section 7), time-outs of at
least 200 ms that double (RFC 6298), and small queues (net/ipv4/tcp_output.c, `tcp_small_queue_check`). Handshakes,
receive windows and delayed acknowledgements by timer are left out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from orchestrator.predict.simulation import machine
from orchestrator.predict.simulation.flows import LATE, OVERLOADED, Arrivals
from orchestrator.predict.simulation.machine import Floats, Heap, Ints, Tasks, compiled

HEADER = 66  # bytes of a segment's headers, and of an acknowledgement
WINDOW = 512  # segments of a connection that may be under way; a power of two
MOST_FLOWS = 2048  # on new connections that are open at once

_TASK, _DATA, _ACK, _TIMER = 0, 1, 2, 3  # kinds of events
_NONE, _FLOW = -1, -2  # what ends with a segment: nothing, or a flow of cross traffic; else a task
_HOP_S = 3e-6  # between two packets that a bucket lets through at once, and for a packet to pass a host
_LATE_S = 20e-6  # of a bucket's timer; without it, packets of two equal links would fall into step at a full queue
_RTO_S = 0.2
_TIMEOUT_MIN_S = 0.008  # two ticks of a kernel at 250 Hz
_MOST_RTO_S = 120.0
_INITIAL_WINDOW = 10.0
_BETA, _C = 717.0 / 1024.0, 0.4  # of CUBIC
_LOW_WINDOW, _TRAIN_S = 16.0, 0.002  # of HyStart
_TRUE_SIZE = 2304.0  # of a full segment in the sender's queue
_ACKS = 1 << 18  # acknowledgements on their way, at most
_NEVER = np.inf


class Queues(NamedTuple):
    """Token buckets of links, and the links of each path; a connection has one path for good, and one back."""

    rate: Floats  # bytes a second
    depth: Floats  # bytes
    limit: Floats  # bytes
    loss: Floats  # probability at each packet
    tokens: Floats
    counted_s: Floats  # when `tokens` was true: the departure of the last packet
    carried: Floats
    dropped: Ints
    hop_of: Ints  # the first entry in `hop` of each path; one more entry ends them
    hop: Ints
    back: Ints  # the path of acknowledgements, by path
    delay_s: Floats  # of each path, beside its queues


class _Sockets(NamedTuple):
    """Connections, with both ends, and their segments, each in the place of its number modulo `WINDOW`."""

    path: Ints
    una: Ints  # the first segment that is not acknowledged
    nxt: Ints  # the next new one
    rcv: Ints  # the next one that the receiver lacks
    owed: Ints  # segments that the receiver has not acknowledged
    window: Floats  # segments (cwnd)
    threshold: Floats
    pipe: Ints  # segments under way
    lost: Ints  # that are to be sent again
    sacked: Ints
    in_nic: Floats  # bytes in the first queue
    rtt_s: Floats
    var_s: Floats
    least_s: Floats  # round trip
    rack_s: Floats  # when the latest segment was sent that has arrived
    recover: Ints  # recovery ends there
    recovering: Ints  # 0: open, 1: recovery, 2: after a time-out
    backoff: Ints
    probed: Ints
    due_s: Floats  # of the timer
    probing: Ints  # whether the timer is that of a probe
    event_s: Floats  # for when the timer has an event
    limited: Ints  # whether the window kept something back
    w_max: Floats
    epoch_s: Floats  # of CUBIC, -1 where none has begun
    k_s: Floats
    origin: Floats
    friend: Floats  # window of the TCP that CUBIC is to be no slower than
    acked: Floats  # since the epoch's last growth
    round_end: Ints
    round_s: Floats
    train_s: Floats
    bytes: Floats  # of a paced stream, still to be sent; less than 0 of a connection that is closed
    first: Ints  # of messages that wait, -1 for none
    last: Ints
    sent_s: Floats
    size: Floats
    flags: Ints  # of a segment: 1 lost, 2 selectively acknowledged, 4 sent again
    got: Ints
    mark: Ints  # what ends with it


class _Messages(NamedTuple):
    """Messages that wait on connections: the next one, bytes left, and what ends with it."""

    next: Ints
    left: Floats
    mark: Ints
    free: Ints  # one number


class _Acks(NamedTuple):
    """Acknowledgements on their way, in turn: all before a segment, and the segment that caused it."""

    all: Ints
    one: Ints
    count: Ints  # one number


@compiled
def _pass(queues: Queues, link: int, size: float, now_s: float) -> float:
    """Return when a packet leaves a link's queue; -1 where it is dropped."""
    if queues.loss[link] > 0.0 and np.random.random() < queues.loss[link]:
        queues.dropped[link] += 1
        return -1.0
    waiting_s = queues.counted_s[link] - now_s
    if waiting_s > 0.0 and waiting_s * queues.rate[link] + size > queues.limit[link]:
        queues.dropped[link] += 1
        return -1.0
    at_s = max(now_s, queues.counted_s[link] + _HOP_S)
    tokens = min(queues.depth[link], queues.tokens[link] + queues.rate[link] * max(0.0, at_s - queues.counted_s[link]))
    if tokens >= size:
        queues.tokens[link] = tokens - size
    else:  # a timer wakes the bucket, a little late
        late_s = _LATE_S * np.random.exponential()
        at_s += (size - tokens) / queues.rate[link] + late_s
        queues.tokens[link] = min(late_s * queues.rate[link], queues.depth[link])
    queues.counted_s[link] = at_s
    queues.carried[link] += size
    return at_s


@compiled
def _code(kind: int, hop: int, socket: int, number: int) -> int:
    return kind | (hop << 2) | (socket << 6) | (number << 28)


@compiled
def _transmit(sockets: _Sockets, queues: Queues, heap: Heap, socket: int, number: int, now_s: float) -> bool:
    """Put a segment into the first queue of its path; return whether it was taken."""
    place = socket * WINDOW + (number & (WINDOW - 1))
    wire = sockets.size[place] + HEADER
    path = sockets.path[socket]
    at_s = _pass(queues, queues.hop[queues.hop_of[path]], wire, now_s)
    if at_s < 0.0:
        return False
    sockets.sent_s[place] = now_s
    sockets.pipe[socket] += 1
    sockets.in_nic[socket] += wire
    machine.push(heap, at_s + _HOP_S, _code(_DATA, 1, socket, number))
    return True


@compiled
def _reduce(sockets: _Sockets, socket: int) -> None:
    """Shrink the window after a loss (RFC 9438, section 4.6 and fast convergence)."""
    window = sockets.window[socket]
    if window < sockets.w_max[socket]:
        sockets.w_max[socket] = window * (1.0 + _BETA) / 2.0
    else:
        sockets.w_max[socket] = window
    sockets.threshold[socket] = max(window * _BETA, 2.0)
    sockets.epoch_s[socket] = -1.0


@compiled
def _arm(sockets: _Sockets, heap: Heap, socket: int, now_s: float) -> None:
    """Set the timer: a probe of the tail where nothing is known to be lost, else a time-out."""
    if sockets.una[socket] == sockets.nxt[socket] and sockets.lost[socket] == 0:
        sockets.due_s[socket] = _NEVER
        return
    rtt_s = sockets.rtt_s[socket]
    rto_s = (max(rtt_s, 0.0) + max(4.0 * sockets.var_s[socket], _RTO_S)) * (1 << min(sockets.backoff[socket], 9))
    rto_s = 1.0 if rtt_s < 0.0 else min(rto_s, _MOST_RTO_S)
    sockets.probing[socket] = 0
    if sockets.recovering[socket] == 0 and sockets.sacked[socket] == 0 and sockets.probed[socket] == 0 and rtt_s >= 0.0:
        one = sockets.nxt[socket] - sockets.una[socket] == 1
        probe_s = 2.0 * rtt_s + (_RTO_S if one else _TIMEOUT_MIN_S)
        if probe_s < rto_s:
            sockets.probing[socket] = 1
            rto_s = probe_s
    sockets.due_s[socket] = now_s + rto_s
    if sockets.event_s[socket] > sockets.due_s[socket]:
        sockets.event_s[socket] = sockets.due_s[socket]
        machine.push(heap, sockets.due_s[socket], _code(_TIMER, 0, socket, 0))


@compiled
def _send(
    sockets: _Sockets, messages: _Messages, queues: Queues, heap: Heap, socket: int, now_s: float, mss: float
) -> None:
    """Send what window and queue let through: lost segments first, then new ones."""
    sent = False
    again = sockets.una[socket]
    while True:
        rtt_s = sockets.rtt_s[socket]
        pace = 2.0 if sockets.window[socket] < sockets.threshold[socket] / 2.0 else 1.2
        quota = 2.0 * _TRUE_SIZE
        if rtt_s > 0.0:
            quota = max(quota, pace * sockets.window[socket] * (mss + HEADER) / rtt_s * 1e-3)
        if sockets.in_nic[socket] >= quota:
            break
        waits = sockets.lost[socket] > 0 or sockets.bytes[socket] >= 1.0 or sockets.first[socket] >= 0
        if not waits:
            break
        if sockets.pipe[socket] >= int(sockets.window[socket]):
            sockets.limited[socket] = 1
            break
        if sockets.lost[socket] > 0:
            while again < sockets.nxt[socket]:
                if sockets.flags[socket * WINDOW + (again & (WINDOW - 1))] & 1:
                    break
                again += 1
            place = socket * WINDOW + (again & (WINDOW - 1))
            if not _transmit(sockets, queues, heap, socket, again, now_s):
                _told(sockets, socket)
                break
            sockets.flags[place] = 4
            sockets.lost[socket] -= 1
            sent = True
            continue
        if sockets.nxt[socket] - sockets.una[socket] >= WINDOW - 1:
            break
        number = sockets.nxt[socket]
        place = socket * WINDOW + (number & (WINDOW - 1))
        message = sockets.first[socket]
        sockets.mark[place] = _NONE
        if message >= 0:
            sockets.size[place] = min(messages.left[message], mss)
        else:
            sockets.size[place] = min(sockets.bytes[socket], mss)
        sockets.flags[place] = 0
        sockets.got[place] = 0
        if not _transmit(sockets, queues, heap, socket, number, now_s):
            _told(sockets, socket)
            break
        sockets.nxt[socket] += 1
        sent = True
        if message >= 0:
            messages.left[message] -= sockets.size[place]
            if messages.left[message] < 0.5:
                sockets.mark[place] = messages.mark[message]
                sockets.first[socket] = messages.next[message]
                messages.next[message] = messages.free[0]
                messages.free[0] = message
        else:
            sockets.bytes[socket] -= sockets.size[place]
    if sent and (sockets.due_s[socket] == _NEVER or sockets.probing[socket]):
        _arm(sockets, heap, socket, now_s)
    elif (
        not sent
        and sockets.due_s[socket] == _NEVER
        and (sockets.lost[socket] > 0 or sockets.bytes[socket] >= 1.0 or sockets.first[socket] >= 0)
    ):  # the host's own queue took nothing, and no acknowledgement will come
        sockets.probing[socket] = 0
        sockets.due_s[socket] = now_s + _TIMEOUT_MIN_S
        if sockets.event_s[socket] > sockets.due_s[socket]:
            sockets.event_s[socket] = sockets.due_s[socket]
            machine.push(heap, sockets.due_s[socket], _code(_TIMER, 0, socket, 0))


@compiled
def _told(sockets: _Sockets, socket: int) -> None:
    """Shrink the window since the host's own queue dropped a segment, of which TCP is told; once a round trip."""
    if sockets.recovering[socket] == 0 and sockets.una[socket] >= sockets.recover[socket]:
        _reduce(sockets, socket)
        sockets.window[socket] = sockets.threshold[socket]
        sockets.recover[socket] = sockets.nxt[socket]


@compiled
def _grow(sockets: _Sockets, socket: int, count: float, now_s: float) -> None:
    """Let the window grow by so many acknowledged segments: slow start, else CUBIC (tcp_cubic.c)."""
    if sockets.limited[socket] == 0:
        return
    window = sockets.window[socket]
    if window < sockets.threshold[socket]:
        sockets.window[socket] = min(window + count, float(WINDOW))
        return
    sockets.acked[socket] += count
    if sockets.epoch_s[socket] < 0.0:
        sockets.epoch_s[socket] = now_s
        sockets.acked[socket] = count
        sockets.friend[socket] = window
        if sockets.w_max[socket] <= window:
            sockets.k_s[socket] = 0.0
            sockets.origin[socket] = window
        else:
            sockets.k_s[socket] = ((sockets.w_max[socket] - window) / _C) ** (1.0 / 3.0)
            sockets.origin[socket] = sockets.w_max[socket]
    since_s = now_s - sockets.epoch_s[socket] + max(sockets.least_s[socket], 0.0) - sockets.k_s[socket]
    target = sockets.origin[socket] + _C * since_s**3
    each = window / (target - window) if target > window else 100.0 * window
    if sockets.w_max[socket] == 0.0 and each > 20.0:
        each = 20.0
    step = window * 15.0 / 8.0
    while sockets.acked[socket] > step > 0.0:
        sockets.acked[socket] -= step
        sockets.friend[socket] += 1.0
    if sockets.friend[socket] > window:
        each = min(each, window / (sockets.friend[socket] - window))
    sockets.window[socket] = min(window + count / max(each, 2.0), float(WINDOW))


@compiled
def _train(sockets: _Sockets, socket: int, now_s: float) -> None:
    """End slow start where a train of acknowledgements is as long as half of the least round trip (HyStart)."""
    if sockets.window[socket] >= sockets.threshold[socket]:
        return
    if sockets.una[socket] >= sockets.round_end[socket]:
        sockets.round_end[socket] = sockets.nxt[socket]
        sockets.round_s[socket] = now_s
        sockets.train_s[socket] = now_s
        return
    if now_s - sockets.train_s[socket] <= _TRAIN_S:
        sockets.train_s[socket] = now_s
        long_s = sockets.least_s[socket] / 2.0
        if now_s - sockets.round_s[socket] > long_s and sockets.window[socket] >= _LOW_WINDOW:
            sockets.threshold[socket] = sockets.window[socket]


@compiled
def _acknowledged(
    sockets: _Sockets, messages: _Messages, queues: Queues, heap: Heap, socket: int, all_: int, one: int, now_s: float
) -> bool:
    """Take an acknowledgement; return whether everything that was sent has arrived."""
    una = sockets.una[socket]
    base = socket * WINDOW
    count = 0
    latest_s = sockets.rack_s[socket]
    if una <= one < sockets.nxt[socket] or una < all_:
        place = base + (one & (WINDOW - 1))
        flags = sockets.flags[place]
        if one >= una and flags & 2 == 0:
            if flags & 4 == 0:
                rtt_s = now_s - sockets.sent_s[place]
                if sockets.rtt_s[socket] < 0.0:
                    sockets.rtt_s[socket], sockets.var_s[socket] = rtt_s, rtt_s / 2.0
                    sockets.least_s[socket] = rtt_s
                else:
                    sockets.var_s[socket] += (abs(rtt_s - sockets.rtt_s[socket]) - sockets.var_s[socket]) / 4.0
                    sockets.rtt_s[socket] += (rtt_s - sockets.rtt_s[socket]) / 8.0
                    sockets.least_s[socket] = min(sockets.least_s[socket], rtt_s)
            latest_s = max(latest_s, sockets.sent_s[place])
            if flags & 1:
                sockets.lost[socket] -= 1
            else:
                sockets.pipe[socket] -= 1
            sockets.flags[place] = 2
            sockets.sacked[socket] += 1
            count += 1
    sockets.rack_s[socket] = latest_s
    while una < all_:
        place = base + (una & (WINDOW - 1))
        flags = sockets.flags[place]
        if flags & 2:
            sockets.sacked[socket] -= 1
        else:
            if flags & 1:
                sockets.lost[socket] -= 1
            else:
                sockets.pipe[socket] -= 1
            count += 1
        sockets.flags[place] = 0
        una += 1
    advanced = una > sockets.una[socket]
    sockets.una[socket] = una
    if advanced:
        sockets.backoff[socket] = 0
        sockets.probed[socket] = 0
    if sockets.recovering[socket] and una >= sockets.recover[socket]:
        if sockets.recovering[socket] == 1:
            sockets.window[socket] = sockets.threshold[socket]
        sockets.recovering[socket] = 0
    if sockets.sacked[socket] > 0:
        found = False
        for number in range(una, sockets.nxt[socket]):
            place = base + (number & (WINDOW - 1))
            if sockets.flags[place] & 3 == 0 and sockets.sent_s[place] < latest_s - 1e-9:
                sockets.flags[place] |= 1
                sockets.lost[socket] += 1
                sockets.pipe[socket] -= 1
                found = True
        if found and sockets.recovering[socket] == 0:
            sockets.recovering[socket] = 1
            sockets.recover[socket] = sockets.nxt[socket]
            _reduce(sockets, socket)
            sockets.window[socket] = sockets.threshold[socket]
    if count > 0 and sockets.recovering[socket] != 1:
        _train(sockets, socket, now_s)
        _grow(sockets, socket, float(count), now_s)
    sockets.limited[socket] = 0
    if advanced or count > 0:
        _arm(sockets, heap, socket, now_s)
    return una == sockets.nxt[socket]


@compiled
def _expired(
    sockets: _Sockets, messages: _Messages, queues: Queues, heap: Heap, socket: int, now_s: float, mss: float
) -> None:
    """Carry out a timer: probe the tail, or take all that is under way for lost."""
    if sockets.una[socket] == sockets.nxt[socket]:
        sockets.due_s[socket] = _NEVER
        _send(sockets, messages, queues, heap, socket, now_s, mss)
        return
    base = socket * WINDOW
    if sockets.probing[socket]:
        sockets.probed[socket] = 1
        number = sockets.nxt[socket] - 1
        place = base + (number & (WINDOW - 1))
        if sockets.flags[place] & 3 == 0:
            sockets.pipe[socket] -= 1
            if _transmit(sockets, queues, heap, socket, number, now_s):
                sockets.flags[place] |= 4
            else:
                sockets.pipe[socket] += 1
        _arm(sockets, heap, socket, now_s)
        return
    if sockets.recovering[socket] != 2 or sockets.backoff[socket] == 0:
        _reduce(sockets, socket)
    sockets.window[socket] = 1.0
    sockets.recovering[socket] = 2
    sockets.recover[socket] = sockets.nxt[socket]
    sockets.backoff[socket] += 1
    for number in range(sockets.una[socket], sockets.nxt[socket]):
        place = base + (number & (WINDOW - 1))
        if sockets.flags[place] & 3 == 0:
            sockets.flags[place] |= 1
            sockets.lost[socket] += 1
            sockets.pipe[socket] -= 1
    sockets.pipe[socket] = max(sockets.pipe[socket], 0)
    _arm(sockets, heap, socket, now_s)
    _send(sockets, messages, queues, heap, socket, now_s, mss)


@compiled
def _put(sockets: _Sockets, messages: _Messages, socket: int, size: float, mark: int) -> bool:
    """Have a message wait on a connection; return whether there was room for it."""
    message = messages.free[0]
    if message < 0:
        return False
    messages.free[0] = messages.next[message]
    messages.next[message] = -1
    messages.left[message] = max(size, 1.0)
    messages.mark[message] = mark
    if sockets.first[socket] < 0:
        sockets.first[socket] = message
    else:
        messages.next[sockets.last[socket]] = message
    sockets.last[socket] = message
    return True


@compiled
def _run(
    tasks: Tasks,
    queues: Queues,
    arrivals: Arrivals,
    sockets: _Sockets,
    messages: _Messages,
    acks: _Acks,
    heap: Heap,
    connections: int,
    wanted: int,
    judge: int,
    until_s: float,
    costs: Floats,
    mss: float,
) -> int:
    """Carry out the graphs until rank `judge` has done `wanted` iterations; return 0, or what stopped it.

    `costs` are the seconds of a message, of a byte of it, of one within a host, and by how much computing is late.
    """
    fresh = np.arange(connections, len(sockets.path))
    unused = len(fresh)
    ready = np.empty(len(tasks.owner) + 1, np.int64)
    room = len(heap.at_s) - 64
    coming = 0
    count = 0
    now_s = 0.0
    for rank in range(len(tasks.begin)):
        if tasks.empty[tasks.begin[rank]] == 0:
            ready[count] = tasks.begin[rank]
            count += 1
    while tasks.done[judge] < wanted:
        while count > 0:
            count -= 1
            task = ready[count]
            again = True
            while again:
                again = machine.take(tasks, task)
                socket = tasks.connection[task]
                if socket < 0:
                    seconds = machine.duration_s(tasks, task, costs[3])
                    if seconds > 0.0 or again:
                        machine.push(heap, now_s + seconds, _code(_TASK, 0, 0, task))
                    else:
                        count = machine.ended(tasks, task, now_s, ready, count)
                    continue
                path = sockets.path[socket]
                if queues.hop_of[path] == queues.hop_of[path + 1]:
                    inside_s = costs[0] + (costs[1] + costs[2]) * tasks.size[task]
                    machine.push(heap, now_s + inside_s, _code(_TASK, 0, 0, task))
                    continue
                if not _put(sockets, messages, socket, tasks.size[task], task):
                    return OVERLOADED
                _send(sockets, messages, queues, heap, socket, now_s, mss)
        if heap.count[0] > room:
            return OVERLOADED
        then_s = heap.at_s[0] if heap.count[0] > 0 else _NEVER
        if coming < len(arrivals.at_s) and arrivals.at_s[coming] <= then_s:
            now_s = max(now_s, arrivals.at_s[coming])
            socket = arrivals.connection[coming]
            if socket < 0:
                if unused == 0:
                    return OVERLOADED
                unused -= 1
                socket = fresh[unused]
                _open(sockets, socket, arrivals.path[coming])
                if not _put(sockets, messages, socket, arrivals.size[coming], _FLOW):
                    return OVERLOADED
            else:
                sockets.bytes[socket] += arrivals.size[coming]
            coming += 1
            _send(sockets, messages, queues, heap, socket, now_s, mss)
            continue
        if then_s > until_s:
            return LATE
        now_s = then_s
        code = machine.pop(heap)
        kind, hop, socket, number = code & 3, (code >> 2) & 15, (code >> 6) & 0x3FFFFF, code >> 28
        if kind == _TASK:
            count = machine.ended(tasks, number, now_s, ready, count)
        elif kind == _DATA:
            place = socket * WINDOW + (number & (WINDOW - 1))
            wire = sockets.size[place] + HEADER
            path = sockets.path[socket]
            if hop == 1:
                sockets.in_nic[socket] -= wire
                if sockets.lost[socket] > 0 or sockets.bytes[socket] >= 1.0 or sockets.first[socket] >= 0:
                    _send(sockets, messages, queues, heap, socket, now_s, mss)
            link = queues.hop_of[path] + hop
            if link < queues.hop_of[path + 1]:
                at_s = _pass(queues, queues.hop[link], wire, now_s)
                if at_s >= 0.0:
                    machine.push(heap, at_s + _HOP_S, _code(_DATA, hop + 1, socket, number))
                continue
            if hop == queues.hop_of[path + 1] - queues.hop_of[path] and queues.delay_s[path] > 0.0:
                machine.push(heap, now_s + queues.delay_s[path], _code(_DATA, hop + 1, socket, number))
                continue
            # It has arrived.
            at_once = number != sockets.rcv[socket]
            if number >= sockets.rcv[socket]:
                sockets.got[place] = 1
            while sockets.rcv[socket] < sockets.nxt[socket]:
                at = socket * WINDOW + (sockets.rcv[socket] & (WINDOW - 1))
                if sockets.got[at] == 0:
                    break
                sockets.got[at] = 0
                mark = sockets.mark[at]
                sockets.mark[at] = _NONE
                if mark != _NONE:
                    at_once = True
                if mark >= 0:
                    cost_s = costs[0] + costs[1] * tasks.size[mark]
                    machine.push(heap, now_s + cost_s, _code(_TASK, 0, 0, mark))
                sockets.rcv[socket] += 1
            sockets.owed[socket] += 1
            if at_once or sockets.owed[socket] >= 2 or sockets.window[socket] < 4.0:
                sockets.owed[socket] = 0
                ticket = acks.count[0] & (_ACKS - 1)
                acks.count[0] += 1
                acks.all[ticket], acks.one[ticket] = sockets.rcv[socket], number
                back = queues.back[path]
                at_s = _pass(queues, queues.hop[queues.hop_of[back]], float(HEADER), now_s)
                if at_s >= 0.0:
                    machine.push(heap, at_s + _HOP_S, _code(_ACK, 1, socket, ticket))
        elif kind == _ACK:
            back = queues.back[sockets.path[socket]]
            link = queues.hop_of[back] + hop
            if link < queues.hop_of[back + 1]:
                at_s = _pass(queues, queues.hop[link], float(HEADER), now_s)
                if at_s >= 0.0:
                    machine.push(heap, at_s + _HOP_S, _code(_ACK, hop + 1, socket, number))
                continue
            if hop == queues.hop_of[back + 1] - queues.hop_of[back] and queues.delay_s[back] > 0.0:
                machine.push(heap, now_s + queues.delay_s[back], _code(_ACK, hop + 1, socket, number))
                continue
            whole = _acknowledged(sockets, messages, queues, heap, socket, acks.all[number], acks.one[number], now_s)
            if sockets.bytes[socket] < 0.0:
                continue  # it is closed
            if whole and socket >= connections and sockets.first[socket] < 0:
                sockets.bytes[socket] = -1.0
                sockets.due_s[socket] = _NEVER
                fresh[unused] = socket
                unused += 1
            else:
                _send(sockets, messages, queues, heap, socket, now_s, mss)
        else:
            sockets.event_s[socket] = _NEVER
            if sockets.due_s[socket] > now_s + 1e-9:
                if sockets.due_s[socket] < _NEVER:
                    sockets.event_s[socket] = sockets.due_s[socket]
                    machine.push(heap, sockets.due_s[socket], _code(_TIMER, 0, socket, 0))
            else:
                _expired(sockets, messages, queues, heap, socket, now_s, mss)
    return 0


@compiled
def _open(sockets: _Sockets, socket: int, path: int) -> None:
    """Begin a connection; its segments go on being numbered where those of the one before ended."""
    sockets.path[socket] = path
    sockets.una[socket] = sockets.rcv[socket] = sockets.recover[socket] = sockets.nxt[socket]
    sockets.owed[socket] = sockets.pipe[socket] = sockets.lost[socket] = sockets.sacked[socket] = 0
    sockets.recovering[socket] = sockets.backoff[socket] = sockets.probed[socket] = sockets.probing[socket] = 0
    sockets.limited[socket] = 0
    sockets.window[socket], sockets.threshold[socket] = _INITIAL_WINDOW, _NEVER
    sockets.rtt_s[socket] = sockets.least_s[socket] = -1.0
    sockets.var_s[socket] = sockets.rack_s[socket] = sockets.w_max[socket] = 0.0
    sockets.epoch_s[socket] = -1.0
    sockets.due_s[socket] = _NEVER
    sockets.round_end[socket] = 0
    sockets.bytes[socket] = 0.0
    sockets.first[socket] = -1


def run(
    tasks: Tasks,
    queues: Queues,
    arrivals: Arrivals,
    path_of: Ints,
    *,
    wanted: int,
    judge: int,
    until_s: float,
    costs: Floats,
    mss: float,
) -> int:
    """Simulate until rank `judge` has done `wanted` iterations; return 0, OVERLOADED, or LATE if `until_s` came first.

    `path_of` is the path of each connection; `costs` as in `_run`; `mss` is the payload of a full segment.
    """
    connections = len(path_of)
    count = connections + MOST_FLOWS
    segments = count * WINDOW
    fields = dict.fromkeys(_Sockets._fields)
    for name, kind in _Sockets.__annotations__.items():
        size = segments if name in ("sent_s", "size", "flags", "got", "mark") else count
        fields[name] = np.zeros(size, np.float64 if "Floats" in str(kind) else np.int64)
    sockets = _Sockets(**fields)  # type: ignore[arg-type]
    sockets.event_s[:] = np.inf
    for number, path in enumerate(path_of):
        _open(sockets, number, path)
    entries = max(4096, 4 * len(tasks.owner) + 2 * MOST_FLOWS)
    messages = _Messages(
        next=np.append(np.arange(1, entries), -1),
        left=np.zeros(entries),
        mark=np.zeros(entries, np.int64),
        free=np.zeros(1, np.int64),
    )
    acks = _Acks(np.zeros(_ACKS, np.int64), np.zeros(_ACKS, np.int64), np.zeros(1, np.int64))
    most = 4 * len(tasks.owner) + 4 * _ACKS
    heap = Heap(np.zeros(most), np.zeros(most, np.int64), np.zeros(1, np.int64))
    return int(
        _run(tasks, queues, arrivals, sockets, messages, acks, heap, connections, wanted, judge, until_s, costs, mss)
    )
