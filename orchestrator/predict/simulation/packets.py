"""Simulate at the grain of packets: token-bucket queues as the testbed sets them, and TCP as Linux sends it.

Of TCP there are CUBIC with HyStart's train of acknowledgements (RFC 9438, net/ipv4/tcp_cubic.c), selective
acknowledgements with losses found by time (RACK, RFC 8985), the tail loss probe (ibid., section 7), time-outs of at
least 200 ms that double (RFC 6298), and small queues (net/ipv4/tcp_output.c, `tcp_small_queue_check`). Handshakes,
receive windows and delayed acknowledgements by timer are left out.
"""

from __future__ import annotations

# ruff: noqa: C901, PLR0917 - compiled: calls hand over every word of every array
from typing import Any, NamedTuple, get_type_hints

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
_OF_SEGMENTS = ("sent_s", "size", "flags", "got", "mark")  # fields of `_Sockets` with a place for each segment


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

    before: Ints
    one: Ints
    given: Ints  # how many, one number


class _Net(NamedTuple):
    """All that a simulation changes, and what it costs."""

    tasks: Tasks
    queues: Queues
    sockets: _Sockets
    messages: _Messages
    acks: _Acks
    heap: Heap
    ready: Ints  # tasks that can begin
    fresh: Ints  # sockets that no connection has
    numbers: Ints  # how many are ready, how many sockets are fresh
    costs: Floats  # seconds of a message, of a byte of it, of one within a host, and by how much computing is late
    mss: float  # payload of a full segment


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
    return float(at_s)


@compiled
def _code(kind: int, hop: int, socket: int, number: int) -> int:
    return kind | (hop << 2) | (socket << 6) | (number << 28)


@compiled
def _transmit(net: _Net, socket: int, number: int, now_s: float) -> bool:
    """Put a segment into the first queue of its path; return whether it was taken."""
    sockets, queues = net.sockets, net.queues
    place = socket * WINDOW + (number & (WINDOW - 1))
    wire = sockets.size[place] + HEADER
    at_s = _pass(queues, queues.hop[queues.hop_of[sockets.path[socket]]], wire, now_s)
    if at_s < 0.0:
        return False
    sockets.sent_s[place] = now_s
    sockets.pipe[socket] += 1
    sockets.in_nic[socket] += wire
    machine.push(net.heap, at_s + _HOP_S, _code(_DATA, 1, socket, number))
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
def _due(net: _Net, socket: int, at_s: float) -> None:
    """Set the timer; a socket has one event at a time, which is put off when it comes too early."""
    sockets = net.sockets
    sockets.due_s[socket] = at_s
    if sockets.event_s[socket] > at_s:
        sockets.event_s[socket] = at_s
        machine.push(net.heap, at_s, _code(_TIMER, 0, socket, 0))


@compiled
def _arm(net: _Net, socket: int, now_s: float) -> None:
    """Set the timer: a probe of the tail where nothing is known to be lost, else a time-out."""
    sockets = net.sockets
    if sockets.una[socket] == sockets.nxt[socket]:
        sockets.due_s[socket] = _NEVER
        return
    rtt_s = sockets.rtt_s[socket]
    wait_s = 1.0  # before any round trip is known (RFC 6298, 2.1)
    if rtt_s >= 0.0:
        wait_s = (rtt_s + max(4.0 * sockets.var_s[socket], _RTO_S)) * (1 << min(sockets.backoff[socket], 9))
    sockets.probing[socket] = 0
    if sockets.recovering[socket] == 0 and sockets.sacked[socket] == 0 and sockets.probed[socket] == 0 and rtt_s >= 0.0:
        one = sockets.nxt[socket] - sockets.una[socket] == 1
        probe_s = 2.0 * rtt_s + (_RTO_S if one else _TIMEOUT_MIN_S)
        if probe_s < wait_s:
            sockets.probing[socket] = 1
            wait_s = probe_s
    _due(net, socket, now_s + min(wait_s, _MOST_RTO_S))


@compiled
def _waits(sockets: _Sockets, socket: int) -> bool:
    """Return whether a socket has something to send."""
    return bool(sockets.lost[socket] > 0 or sockets.first[socket] >= 0 or sockets.bytes[socket] >= 1.0)


@compiled
def _quota(net: _Net, socket: int) -> float:
    """Return the bytes that may lie in the first queue: a millisecond of the pace, or two segments."""
    sockets = net.sockets
    rtt_s, window = sockets.rtt_s[socket], sockets.window[socket]
    if rtt_s <= 0.0:
        return 2.0 * _TRUE_SIZE
    ahead = 2.0 if window < sockets.threshold[socket] / 2.0 else 1.2
    return max(2.0 * _TRUE_SIZE, float(ahead * window * (net.mss + HEADER) / rtt_s * 1e-3))


@compiled
def _send(net: _Net, socket: int, now_s: float) -> None:
    """Send what window and queue let through: lost segments first, then new ones."""
    sockets = net.sockets
    sent = False
    again = sockets.una[socket]
    while _waits(sockets, socket) and sockets.in_nic[socket] < _quota(net, socket):
        if sockets.pipe[socket] >= int(sockets.window[socket]):
            sockets.limited[socket] = 1
            break
        if sockets.lost[socket] > 0:
            while sockets.flags[socket * WINDOW + (again & (WINDOW - 1))] & 1 == 0:
                again += 1
            taken = _transmit(net, socket, again, now_s)
            if taken:
                sockets.flags[socket * WINDOW + (again & (WINDOW - 1))] = 4
                sockets.lost[socket] -= 1
        else:
            if sockets.nxt[socket] - sockets.una[socket] >= WINDOW - 1:
                break
            taken = _send_new(net, socket, now_s)
        if not taken:
            _told(sockets, socket)
            break
        sent = True
    if sent:
        if sockets.due_s[socket] == _NEVER or sockets.probing[socket]:
            _arm(net, socket, now_s)
    elif sockets.due_s[socket] == _NEVER and _waits(sockets, socket) and sockets.in_nic[socket] <= 0.0:
        sockets.probing[socket] = 0  # the host's own queue took nothing, and no acknowledgement will come
        _due(net, socket, now_s + _TIMEOUT_MIN_S)


@compiled
def _send_new(net: _Net, socket: int, now_s: float) -> bool:
    """Send the next segment of the first message that waits, or of a paced stream; return whether it was taken."""
    sockets, messages = net.sockets, net.messages
    place = socket * WINDOW + (sockets.nxt[socket] & (WINDOW - 1))
    message = sockets.first[socket]
    left = messages.left[message] if message >= 0 else sockets.bytes[socket]
    sockets.size[place] = min(left, net.mss)
    sockets.flags[place] = sockets.got[place] = 0
    sockets.mark[place] = _NONE
    if not _transmit(net, socket, sockets.nxt[socket], now_s):
        return False
    sockets.nxt[socket] += 1
    left -= sockets.size[place]
    if message < 0:
        sockets.bytes[socket] = left
    elif left >= 0.5:
        messages.left[message] = left
    else:
        sockets.mark[place] = messages.mark[message]
        sockets.first[socket] = messages.next[message]
        messages.next[message] = messages.free[0]
        messages.free[0] = message
    return True


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
    window = sockets.window[socket]
    if window < sockets.threshold[socket]:
        sockets.window[socket] = min(window + count, float(WINDOW))
        return
    sockets.acked[socket] += count
    if sockets.epoch_s[socket] < 0.0:
        sockets.epoch_s[socket] = now_s
        sockets.acked[socket] = count
        sockets.friend[socket] = window
        below = max(sockets.w_max[socket] - window, 0.0)
        sockets.k_s[socket] = (below / _C) ** (1.0 / 3.0)
        sockets.origin[socket] = window + below
    since_s = now_s - sockets.epoch_s[socket] + max(sockets.least_s[socket], 0.0) - sockets.k_s[socket]
    target = sockets.origin[socket] + _C * since_s**3
    each = window / (target - window) if target > window else 100.0 * window
    if sockets.w_max[socket] == 0.0:
        each = min(each, 20.0)
    step = window * 15.0 / 8.0
    while sockets.acked[socket] > step:
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
        sockets.round_s[socket] = sockets.train_s[socket] = now_s
    elif now_s - sockets.train_s[socket] <= _TRAIN_S:
        sockets.train_s[socket] = now_s
        long = now_s - sockets.round_s[socket] > sockets.least_s[socket] / 2.0
        if long and sockets.window[socket] >= _LOW_WINDOW:
            sockets.threshold[socket] = sockets.window[socket]


@compiled
def _round_trip(sockets: _Sockets, socket: int, rtt_s: float) -> None:
    """Take a measured round trip (RFC 6298, section 2)."""
    if sockets.rtt_s[socket] < 0.0:
        sockets.rtt_s[socket] = sockets.least_s[socket] = rtt_s
        sockets.var_s[socket] = rtt_s / 2.0
        return
    sockets.var_s[socket] += (abs(rtt_s - sockets.rtt_s[socket]) - sockets.var_s[socket]) / 4.0
    sockets.rtt_s[socket] += (rtt_s - sockets.rtt_s[socket]) / 8.0
    sockets.least_s[socket] = min(sockets.least_s[socket], rtt_s)


@compiled
def _left(sockets: _Sockets, socket: int, place: int) -> None:
    """Note that a segment is no longer under way, or no longer lost, since it has arrived."""
    if sockets.flags[place] & 1:
        sockets.lost[socket] -= 1
    else:
        sockets.pipe[socket] -= 1


@compiled
def _acknowledged(net: _Net, socket: int, before: int, one: int, now_s: float) -> None:
    """Take an acknowledgement of all segments before a number and of one: find losses, and let the window grow."""
    sockets = net.sockets
    base, una, count = socket * WINDOW, sockets.una[socket], 0
    place = base + (one & (WINDOW - 1))
    if una <= one < sockets.nxt[socket] and sockets.flags[place] & 2 == 0:
        if sockets.flags[place] & 4 == 0:
            _round_trip(sockets, socket, now_s - sockets.sent_s[place])
        sockets.rack_s[socket] = max(sockets.rack_s[socket], sockets.sent_s[place])
        _left(sockets, socket, place)
        sockets.flags[place] = 2
        sockets.sacked[socket] += 1
        count += 1
    advanced = una < before
    while una < before:
        place = base + (una & (WINDOW - 1))
        if sockets.flags[place] & 2:
            sockets.sacked[socket] -= 1
        else:
            _left(sockets, socket, place)
            count += 1
        sockets.flags[place] = 0
        una += 1
    sockets.una[socket] = una
    if advanced:
        sockets.backoff[socket] = sockets.probed[socket] = 0
    if sockets.recovering[socket] and una >= sockets.recover[socket]:
        sockets.recovering[socket] = 0
    if sockets.sacked[socket] > 0:
        _find_lost(sockets, socket)
    if count > 0:
        if sockets.recovering[socket] != 1:
            _train(sockets, socket, now_s)
            if sockets.limited[socket]:
                _grow(sockets, socket, float(count), now_s)
        _arm(net, socket, now_s)
    sockets.limited[socket] = 0


@compiled
def _find_lost(sockets: _Sockets, socket: int) -> None:
    """Take for lost what was sent before a segment that has arrived; no packets overtake others here."""
    found = False
    for number in range(sockets.una[socket], sockets.nxt[socket]):
        place = socket * WINDOW + (number & (WINDOW - 1))
        if sockets.flags[place] & 3 == 0 and sockets.sent_s[place] < sockets.rack_s[socket] - 1e-9:
            sockets.flags[place] |= 1
            sockets.lost[socket] += 1
            sockets.pipe[socket] -= 1
            found = True
    if found and sockets.recovering[socket] == 0:
        sockets.recovering[socket] = 1
        sockets.recover[socket] = sockets.nxt[socket]
        _reduce(sockets, socket)
        sockets.window[socket] = sockets.threshold[socket]


@compiled
def _expired(net: _Net, socket: int, now_s: float) -> None:
    """Carry out a timer: probe the tail, or take all that is under way for lost."""
    sockets = net.sockets
    if sockets.una[socket] < sockets.nxt[socket] and sockets.probing[socket]:
        sockets.probed[socket] = 1
        number = sockets.nxt[socket] - 1
        place = socket * WINDOW + (number & (WINDOW - 1))
        if sockets.flags[place] & 3 == 0 and _transmit(net, socket, number, now_s):
            sockets.flags[place] |= 4
            sockets.pipe[socket] -= 1
        _arm(net, socket, now_s)
        return
    sockets.due_s[socket] = _NEVER
    if sockets.una[socket] < sockets.nxt[socket]:
        if sockets.recovering[socket] != 2:
            _reduce(sockets, socket)
        sockets.window[socket] = 1.0
        sockets.recovering[socket] = 2
        sockets.recover[socket] = sockets.nxt[socket]
        sockets.backoff[socket] += 1
        for number in range(sockets.una[socket], sockets.nxt[socket]):
            place = socket * WINDOW + (number & (WINDOW - 1))
            if sockets.flags[place] & 3 == 0:
                sockets.flags[place] |= 1
                sockets.lost[socket] += 1
                sockets.pipe[socket] -= 1
        _arm(net, socket, now_s)
    _send(net, socket, now_s)


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
def _begin(net: _Net, task: int, now_s: float) -> bool:
    """Begin a task that can; return whether there was room for it."""
    tasks, queues = net.tasks, net.queues
    again = True
    while again:
        again = machine.take(tasks, task)
        socket = tasks.connection[task]
        if socket < 0:
            seconds = machine.duration_s(tasks, task, net.costs[3])
            if seconds > 0.0 or again:
                machine.push(net.heap, now_s + seconds, _code(_TASK, 0, 0, task))
            else:
                net.numbers[0] = machine.ended(tasks, task, now_s, net.ready, net.numbers[0])
            continue
        path = net.sockets.path[socket]
        if queues.hop_of[path] == queues.hop_of[path + 1]:
            inside_s = net.costs[0] + (net.costs[1] + net.costs[2]) * tasks.size[task]
            machine.push(net.heap, now_s + inside_s, _code(_TASK, 0, 0, task))
            continue
        if not _put(net.sockets, net.messages, socket, tasks.size[task], task):
            return False
        _send(net, socket, now_s)
    return True


@compiled
def _hop(net: _Net, kind: int, hop: int, socket: int, number: int, path: int, wire: float, now_s: float) -> bool:
    """Pass a packet on to the next link of its path; return False where it has no further one."""
    queues = net.queues
    link, end = queues.hop_of[path] + hop, queues.hop_of[path + 1]
    at_s = now_s
    if link < end:
        at_s = _pass(queues, queues.hop[link], wire, now_s)
        if at_s < 0.0:
            return True
        at_s += _HOP_S
    elif link > end or queues.delay_s[path] <= 0.0:
        return False
    else:
        at_s += queues.delay_s[path]
    machine.push(net.heap, at_s, _code(kind, hop + 1, socket, number))
    return True


@compiled
def _arrived(net: _Net, socket: int, number: int, now_s: float) -> None:
    """Receive a segment, and acknowledge every second one; at once where one is missing or a message ends."""
    sockets, acks = net.sockets, net.acks
    place = socket * WINDOW + (number & (WINDOW - 1))
    at_once = number != sockets.rcv[socket] or sockets.window[socket] < 4.0
    if number >= sockets.rcv[socket]:
        sockets.got[place] = 1
    while sockets.rcv[socket] < sockets.nxt[socket]:
        place = socket * WINDOW + (sockets.rcv[socket] & (WINDOW - 1))
        if sockets.got[place] == 0:
            break
        sockets.got[place] = 0
        mark = sockets.mark[place]
        if mark != _NONE:
            at_once = True
            if mark >= 0:
                cost_s = net.costs[0] + net.costs[1] * net.tasks.size[mark]
                machine.push(net.heap, now_s + cost_s, _code(_TASK, 0, 0, mark))
        sockets.rcv[socket] += 1
    sockets.owed[socket] += 1
    if at_once or sockets.owed[socket] >= 2:
        sockets.owed[socket] = 0
        ticket = acks.given[0] & (_ACKS - 1)
        acks.given[0] += 1
        acks.before[ticket], acks.one[ticket] = sockets.rcv[socket], number
        _hop(net, _ACK, 0, socket, ticket, net.queues.back[sockets.path[socket]], float(HEADER), now_s)


@compiled
def _happen(net: _Net, code: int, connections: int, now_s: float) -> None:
    """Carry out an event."""
    sockets = net.sockets
    kind, hop, socket, number = code & 3, (code >> 2) & 15, (code >> 6) & 0x3FFFFF, code >> 28
    if kind == _TASK:
        net.numbers[0] = machine.ended(net.tasks, number, now_s, net.ready, net.numbers[0])
    elif kind == _DATA:
        wire = sockets.size[socket * WINDOW + (number & (WINDOW - 1))] + HEADER
        if hop == 1:
            sockets.in_nic[socket] -= wire
            if _waits(sockets, socket):
                _send(net, socket, now_s)
        if not _hop(net, kind, hop, socket, number, sockets.path[socket], wire, now_s):
            _arrived(net, socket, number, now_s)
    elif kind == _ACK:
        back = net.queues.back[sockets.path[socket]]
        if _hop(net, kind, hop, socket, number, back, float(HEADER), now_s) or sockets.bytes[socket] < 0.0:
            return
        _acknowledged(net, socket, net.acks.before[number], net.acks.one[number], now_s)
        whole = sockets.una[socket] == sockets.nxt[socket] and sockets.first[socket] < 0
        if whole and socket >= connections:
            sockets.bytes[socket] = -1.0
            sockets.due_s[socket] = _NEVER
            net.fresh[net.numbers[1]] = socket
            net.numbers[1] += 1
        else:
            _send(net, socket, now_s)
    else:
        sockets.event_s[socket] = _NEVER
        if sockets.due_s[socket] <= now_s + 1e-9:
            _expired(net, socket, now_s)
        elif sockets.due_s[socket] < _NEVER:
            _due(net, socket, sockets.due_s[socket])


@compiled
def _come(net: _Net, arrivals: Arrivals, coming: int, now_s: float) -> bool:
    """Begin a flow of cross traffic, or add to a stream; return whether there was room for it."""
    sockets = net.sockets
    socket = arrivals.connection[coming]
    if socket >= 0:
        sockets.bytes[socket] += arrivals.size[coming]
    else:
        if net.numbers[1] == 0:
            return False
        net.numbers[1] -= 1
        socket = net.fresh[net.numbers[1]]
        _open(sockets, socket, arrivals.path[coming])
        if not _put(sockets, net.messages, socket, arrivals.size[coming], _FLOW):
            return False
    _send(net, socket, now_s)
    return True


@compiled
def _run(net: _Net, arrivals: Arrivals, connections: int, wanted: int, until_s: float) -> int:
    """Carry out the graphs until rank 0 has done `wanted` iterations; return 0, or what stopped it."""
    tasks, heap = net.tasks, net.heap
    room = len(heap.at_s) - 64
    coming, now_s = 0, 0.0
    net.numbers[0] = machine.start(tasks, net.ready)
    while tasks.done[0] < wanted:
        while net.numbers[0] > 0:
            net.numbers[0] -= 1
            if not _begin(net, net.ready[net.numbers[0]], now_s):
                return OVERLOADED
        if heap.held[0] > room:
            return OVERLOADED
        then_s = heap.at_s[0] if heap.held[0] > 0 else _NEVER
        if coming < len(arrivals.at_s) and arrivals.at_s[coming] <= then_s:
            now_s = max(now_s, arrivals.at_s[coming])
            if not _come(net, arrivals, coming, now_s):
                return OVERLOADED
            coming += 1
        elif then_s > until_s:
            return LATE
        else:
            now_s = then_s
            _happen(net, machine.pop(heap), connections, now_s)
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
    until_s: float,
    costs: Floats,
    mss: float,
) -> int:
    """Simulate until rank 0 has done `wanted` iterations; return 0, OVERLOADED, or LATE if `until_s` came first.

    `path_of` is the path of each connection; `costs` and `mss` as in `_Net`.
    """
    connections = len(path_of)
    count = connections + MOST_FLOWS
    fields: dict[str, Any] = {
        name: np.zeros(count * WINDOW if name in _OF_SEGMENTS else count, np.float64 if kind == Floats else np.int64)
        for name, kind in get_type_hints(_Sockets).items()
    }
    sockets = _Sockets(**fields)
    sockets.event_s[:] = np.inf
    for number, path in enumerate(path_of):
        _open(sockets, number, path)
    entries = max(4096, 4 * len(tasks.owner) + 2 * MOST_FLOWS)
    most = 4 * len(tasks.owner) + 4 * _ACKS
    net = _Net(
        tasks=tasks,
        queues=queues,
        sockets=sockets,
        messages=_Messages(
            next=np.append(np.arange(1, entries), -1),
            left=np.zeros(entries),
            mark=np.zeros(entries, np.int64),
            free=np.zeros(1, np.int64),
        ),
        acks=_Acks(np.zeros(_ACKS, np.int64), np.zeros(_ACKS, np.int64), np.zeros(1, np.int64)),
        heap=Heap(np.zeros(most), np.zeros(most, np.int64), np.zeros(1, np.int64)),
        ready=np.zeros(len(tasks.owner) + 1, np.int64),
        fresh=np.arange(connections, count),
        numbers=np.array([0, MOST_FLOWS]),
        costs=costs,
        mss=mss,
    )
    return int(_run(net, arrivals, connections, wanted, until_s))
