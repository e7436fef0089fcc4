"""Simulate at the grain of packets: token-bucket queues as the testbed sets them, and TCP as Linux sends it.

Of TCP there are CUBIC with both parts of HyStart (RFC 9438, net/ipv4/tcp_cubic.c), windows that grow only while they
limit the sender (net/ipv4/tcp_output.c, `tcp_cwnd_validate`, without a restart after idle times) and shrink in
proportion to what arrives (PRR, RFC 6937), selective acknowledgements with losses found by time (RACK, RFC 8985), the
tail loss probe (ibid., section 7), time-outs of at least 200 ms that double (RFC 6298), and small queues
(net/ipv4/tcp_output.c, `tcp_small_queue_check`). Segments leave in bursts; one of which the host's own queue takes
nothing waits for a timer. Handshakes, receive windows and delayed acknowledgements by timer are left out.
"""

from __future__ import annotations

# ruff: noqa: C901, PLR0917 - compiled: calls hand over every word of every array
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from orchestrator.predict.simulation import machine
from orchestrator.predict.simulation.compiled import call, compiled
from orchestrator.predict.simulation.machine import (
    LATE,
    NEVER,
    OVERLOADED,
    Arrivals,
    Floats,
    Heap,
    Ints,
    Reroutes,
    Tasks,
)

HEADER = 66  # bytes of a segment's headers, and of an acknowledgement
WINDOW = 4096  # segments of a connection that may be under way (6 MB, net.ipv4.tcp_rmem); a power of two
MOST_FLOWS = 2048  # on new connections that are open at once

_TASK, _DATA, _ACK, _TIMER = 0, 1, 2, 3  # kinds of events
_NONE, _FLOW, _NOTICE = -1, -2, -3  # what ends with a segment: nothing, a flow of cross traffic, a notice; else a task
_FULL, _GONE = -1.0, -2.0  # why a queue drops a packet: it has no room, or by chance
_TAKEN, _HELD, _LIMITED = 1.0, -3.0, -4.0  # a burst is sent; the queue holds enough, or more room is worth waiting for
_RTO_S = 0.2
_AGAIN_S = 0.5  # where the host's own queue takes no probe (TCP_RESOURCE_PROBE_INTERVAL)
_TIMEOUT_MIN_S = 0.008  # two ticks of a kernel at 250 Hz
_MOST_RTO_S = 120.0
_INITIAL_WINDOW = 10.0
_BETA, _C = 717.0 / 1024.0, 0.4  # of CUBIC
_LOW_WINDOW, _TRAIN_S, _MOST_SLACK_S, _SLACK_BYTES = 16.0, 0.002, 0.001, 4.0 * 65536  # of HyStart's trains
_LEAST_RISE_S, _MOST_RISE_S, _SAMPLES = 0.004, 0.016, 8  # of HyStart's delays
_BLIND_S = 1.0  # of HyStart, after a loss
_TRUE_SIZE = 2304.0  # of a segment in the sender's queue
_GSO_BYTES = 65536.0  # of the largest packet that TCP hands over
_LEAST_BURST, _BURST_S, _BURST_RTT_S = 2, 1.0 / 1024.0, 512e-6  # of such packets
_IDLE_S = 20e-6  # round trip through idle hosts
NOTICE_BYTES = 48.0  # that announce a message of a rank (gloo/transport/tcp/pair.h, `Op`)
_RECENT_S = 0.001  # how long ago TCP has sent where it may wait for more acknowledgements
_ACKS = 1 << 18  # acknowledgements on their way, at most


Records = npt.NDArray[np.void]

# A token bucket at the end of a link.
QUEUE = np.dtype(
    [
        ("rate", np.float64),  # bytes a second
        ("depth", np.float64),  # bytes
        ("limit", np.float64),  # bytes
        ("loss", np.float64),  # probability at each packet
        ("late_s", np.float64),  # of its timer, in the mean
        ("gap_s", np.float64),  # between two packets that it lets through at once, and for a packet to pass a host
        ("wake_s", np.float64),  # of the processors, for each byte of a packet that its timer lets through
        ("late", np.int64),  # whether that was so of the last packet
        ("tokens", np.float64),
        ("counted_s", np.float64),  # when `tokens` was true: the departure of the last packet
        ("carried", np.float64),
        ("dropped", np.int64),
    ]
)

# A way from host to host: its links are `hops[first:end]`.
PATH = np.dtype(
    [
        ("first", np.int64),
        ("end", np.int64),
        ("back", np.int64),  # the path of acknowledgements
        ("delay_s", np.float64),  # beside its queues
    ]
)


class Queues(NamedTuple):
    """The queues of all links, the links of each path, and the processors that all hosts share.

    A connection has one path for good.
    """

    links: Records
    paths: Records
    hops: Ints
    processors: Floats  # when they have done all that they have, one number


# A connection, with both of its ends.
_SOCKET = np.dtype(
    [
        ("path", np.int64),
        ("una", np.int64),  # the first segment that is not acknowledged
        ("nxt", np.int64),  # the next new one
        ("rcv", np.int64),  # the next one that the receiver lacks
        ("owed", np.int64),  # segments that the receiver has not acknowledged
        ("window", np.float64),  # segments (cwnd)
        ("threshold", np.float64),
        ("pipe", np.int64),  # segments under way
        ("lost", np.int64),  # that are to be sent again
        ("sacked", np.int64),
        ("in_nic", np.int64),  # segments in the first queue
        ("rtt_s", np.float64),
        ("var_s", np.float64),
        ("least_s", np.float64),  # round trip
        ("rack_s", np.float64),  # when the latest segment was sent that has arrived
        ("rack", np.int64),  # its number
        ("recover", np.int64),  # recovery ends there
        ("recovering", np.int64),  # 0: open, 1: recovery, 2: after a time-out
        ("told", np.int64),  # whether the host's own queue has dropped a segment since `recover` was sent
        ("prior", np.float64),  # window when it began to shrink; since then:
        ("delivered", np.int64),  # segments that have arrived
        ("sent", np.int64),
        ("backoff", np.int64),
        ("probed", np.int64),
        ("due_s", np.float64),  # of the timer
        ("probing", np.int64),  # whether the timer is that of a probe
        ("event_s", np.float64),  # for when the timer has an event
        ("limited", np.int64),  # whether the window kept something back
        ("most", np.int64),  # segments under way at once, in the round that ends at `used_to`
        ("used_to", np.int64),
        ("last_s", np.float64),  # when it sent last
        ("w_max", np.float64),
        ("epoch_s", np.float64),  # of CUBIC, -1 where none has begun
        ("k_s", np.float64),
        ("origin", np.float64),
        ("friend", np.float64),  # window of the TCP that CUBIC is to be no slower than
        ("acked", np.float64),  # since the epoch's last growth
        ("round_end", np.int64),
        ("round_s", np.float64),
        ("train_s", np.float64),
        ("round_least_s", np.float64),  # round trip, of so many samples
        ("samples", np.int64),
        ("twin", np.int64),  # the same connection in the other direction, -1 where nothing is sent there
        ("mute", np.int64),  # whether it sends datagrams, of which nothing comes back
        ("bytes", np.float64),  # of a paced stream, still to be sent; less than 0 of a connection that is closed
        ("first", np.int64),  # of messages that wait, -1 for none
        ("last", np.int64),
    ]
)

# A segment of a connection, in the place of its number modulo `WINDOW`.
_SEGMENT = np.dtype(
    [
        ("sent_s", np.float64),
        ("size", np.float32),
        ("mark", np.int32),  # what ends with it
        ("flags", np.int8),  # of a segment: 1 lost, 2 selectively acknowledged, 4 sent again
        ("got", np.int8),
    ],
    align=True,
)

# Messages that wait on connections, and acknowledgements on their way, in turn.
_MESSAGE = np.dtype([("next", np.int64), ("left", np.float64), ("mark", np.int64)])
_ACK_OF = np.dtype([("before", np.int64), ("one", np.int64)])


class _Net(NamedTuple):
    """All that a simulation changes, and what it costs."""

    tasks: Tasks
    queues: Queues
    sockets: Records
    segments: Records
    messages: Records
    acks: Records
    heap: Heap
    ready: Ints  # tasks that can begin
    fresh: Ints  # sockets that no connection has
    numbers: Ints  # how many are ready, how many sockets are fresh, the first free message, acknowledgements so far
    costs: Floats  # in seconds, as `run` has them
    mss: float  # payload of a full segment
    notice: float  # bytes that announce a message of a rank, 0 for none


@compiled
def _pass(links: Records, link: int, size: float, now_s: float) -> float:
    """Return when a packet leaves a link's queue; `_FULL` or `_GONE` where it is dropped."""
    queue = links[link]
    if queue.loss > 0.0 and np.random.random() < queue.loss:
        queue.dropped += 1
        return _GONE
    waiting_s = queue.counted_s - now_s
    if waiting_s > 0.0 and waiting_s * queue.rate + size > queue.limit:
        queue.dropped += 1
        return _FULL
    at_s = max(now_s, queue.counted_s + queue.gap_s)
    tokens = min(queue.depth, queue.tokens + queue.rate * max(0.0, at_s - queue.counted_s))
    queue.late = int(tokens < size)
    if tokens >= size:
        queue.tokens = tokens - size
    else:  # a timer wakes the bucket, a little late
        late_s = queue.late_s * np.random.exponential()
        at_s += (size - tokens) / queue.rate + late_s
        queue.tokens = min(late_s * queue.rate, queue.depth)
    queue.counted_s = at_s
    queue.carried += size
    return float(at_s)


@compiled
def _code(kind: int, hop: int, socket: int, number: int) -> int:
    return kind | (hop << 2) | (socket << 6) | (number << 28)


@compiled
def _charge(net: _Net, path: int, hop: int, late: int, wire: float, now_s: float) -> None:
    """Charge the processors that all hosts share for a packet, which has left this hop of its path.

    They fall behind by so much at most: then they take many packets at a time. What waits for them are messages.
    """
    queues = net.queues
    work_s = net.costs[3] * wire if hop == 1 else 0.0
    if late:
        work_s += queues.links[queues.hops[queues.paths[path].first + hop - 1]].wake_s * wire
    if work_s > 0.0:
        behind_s = max(queues.processors[0], now_s)
        queues.processors[0] = max(behind_s, min(behind_s + work_s, now_s + net.costs[4]))


@compiled
def _dealt_with(net: _Net, messages: float, now_s: float) -> float:
    """Return when the processors that all hosts share have dealt with so many messages more."""
    processors = net.queues.processors
    processors[0] = max(processors[0], now_s) + net.costs[5] * messages
    return float(processors[0])


@compiled
def _transmit(net: _Net, socket: int, number: int, count: int, now_s: float) -> bool:
    """Put segments in a row into the first queue of their path; return whether it took any.

    TCP hands them over as one packet, whatever the device can do (`sk_setup_caps`). A bucket that cannot pass it at
    once splits it (net/sched/sch_tbf.c, `tbf_segment`), and of what it drops then, or at random, TCP is not told.
    """
    sockets, queues, segments = net.sockets, net.queues, net.segments
    base = socket * WINDOW
    link = queues.hops[queues.paths[sockets[socket].path].first]
    wire = 0.0
    for one in range(number, number + count):
        wire += segments[base + (one & (WINDOW - 1))].size + HEADER
    whole = wire <= queues.links[link].depth or count == 1
    at_s, taken = 0.0, False
    for one in range(number, number + count):
        if not whole:
            at_s = _pass(queues.links, link, segments[base + (one & (WINDOW - 1))].size + HEADER, now_s)
        elif one == number:
            at_s = _pass(queues.links, link, wire, now_s)
        else:
            at_s += queues.links[link].gap_s
            queues.links[link].counted_s = at_s
            queues.links[link].tokens += queues.links[link].rate * queues.links[link].gap_s
        if at_s != _FULL:
            taken = True
        if at_s >= 0.0:
            late = queues.links[link].late
            sockets[socket].in_nic += 1
            machine.push(net.heap, at_s + queues.links[link].gap_s, _code(_DATA, 1 | (late << 3), socket, one))
        elif whole:
            break
    if taken:
        sockets[socket].sent += count
        sockets[socket].last_s = now_s
        for one in range(number, number + count):
            segments[base + (one & (WINDOW - 1))].sent_s = now_s
        sockets[socket].pipe += count
    return taken


@compiled
def _reduce(sockets: Records, socket: int) -> None:
    """Note to which window to shrink after a loss (RFC 9438, section 4.6 and fast convergence)."""
    window = sockets[socket].window
    if window < sockets[socket].w_max:
        sockets[socket].w_max = window * (1.0 + _BETA) / 2.0
    else:
        sockets[socket].w_max = window
    sockets[socket].threshold = max(window * _BETA, 2.0)
    sockets[socket].epoch_s = -1.0
    sockets[socket].prior = window
    sockets[socket].delivered = sockets[socket].sent = 0


@compiled
def _shrink(sockets: Records, socket: int, count: int, more: int) -> None:
    """Shrink the window in proportion to what arrives (RFC 6937 with its slow start bound, `tcp_cwnd_reduction`).

    An acknowledgement of `count` segments has come; `more` is 1 where it moves the first one and nothing is newly lost.
    """
    sockets[socket].delivered += count
    delivered, sent = sockets[socket].delivered, sockets[socket].sent
    room = int(sockets[socket].threshold) - sockets[socket].pipe
    if room < 0:
        due = math.ceil(sockets[socket].threshold * delivered / sockets[socket].prior) - sent
    else:
        due = min(room, max(delivered - sent, count) + more)
    sockets[socket].window = float(sockets[socket].pipe + max(due, 0 if sent > 0 else 1))


@compiled
def _due(net: _Net, socket: int, at_s: float) -> None:
    """Set the timer; a socket has one event at a time, which is put off when it comes too early."""
    sockets = net.sockets
    sockets[socket].due_s = at_s
    if sockets[socket].event_s > at_s:
        sockets[socket].event_s = at_s
        machine.push(net.heap, at_s, _code(_TIMER, 0, socket, 0))


@compiled
def _arm(net: _Net, socket: int, now_s: float) -> None:
    """Set the timer: a probe of the tail where nothing is known to be lost, else a time-out."""
    sockets = net.sockets
    if sockets[socket].una == sockets[socket].nxt:
        sockets[socket].due_s = NEVER
        return
    rtt_s = sockets[socket].rtt_s
    wait_s = (rtt_s + max(4.0 * sockets[socket].var_s, _RTO_S)) * (1 << min(sockets[socket].backoff, 9))
    sockets[socket].probing = 0
    if sockets[socket].recovering == 0 and sockets[socket].sacked == 0 and sockets[socket].probed == 0:
        one = sockets[socket].nxt - sockets[socket].una == 1
        probe_s = 2.0 * rtt_s + (_RTO_S if one else _TIMEOUT_MIN_S)
        if probe_s < wait_s:
            sockets[socket].probing = 1
            wait_s = probe_s
    _due(net, socket, now_s + min(wait_s, _MOST_RTO_S))


@compiled
def _waits(sockets: Records, socket: int) -> bool:
    """Return whether a socket has something to send."""
    return bool(sockets[socket].lost > 0 or sockets[socket].first >= 0 or sockets[socket].bytes >= 1.0)


@compiled
def _pace(net: _Net, socket: int) -> float:
    """Return the bytes a second that a connection is taken to send."""
    window = net.sockets[socket].window
    ahead = 2.0 if window < net.sockets[socket].threshold / 2.0 else 1.2
    return float(ahead * window * net.mss / net.sockets[socket].rtt_s)


@compiled
def _burst(net: _Net, socket: int) -> int:
    """Return the segments that TCP hands over at once: the fewer, the longer the way is (`tcp_tso_autosize`)."""
    most = _pace(net, socket) * _BURST_S + _GSO_BYTES / 2.0 ** min(net.sockets[socket].least_s // _BURST_RTT_S, 31.0)
    return max(_LEAST_BURST, int(min(most, _GSO_BYTES) / net.mss))


@compiled
def _holds_enough(net: _Net, socket: int, count: int) -> bool:
    """Return whether the first queue holds enough of a connection: two such bursts, or a millisecond of its pace."""
    sockets = net.sockets
    most = max(2.0 * count * _TRUE_SIZE, _pace(net, socket) * _BURST_S)
    return bool(sockets[socket].in_nic * _TRUE_SIZE > most and sockets[socket].nxt - sockets[socket].una > count)


@compiled
def _defers(net: _Net, socket: int, room: int, burst: int, now_s: float) -> bool:
    """Return whether TCP waits for more room in its window, to hand over more at once (`tcp_tso_should_defer`)."""
    sockets = net.sockets
    if sockets[socket].recovering or room >= burst or room >= int(sockets[socket].window) // 3:
        return False
    head = net.segments[socket * WINDOW + (sockets[socket].una & (WINDOW - 1))].sent_s
    recent = now_s - sockets[socket].last_s <= _RECENT_S
    return bool(recent and sockets[socket].pipe > 0 and now_s - head >= sockets[socket].rtt_s / 2.0)


@compiled
def _send(net: _Net, socket: int, now_s: float) -> None:
    """Send what window and queue let through: lost segments first, then new ones."""
    sockets = net.sockets
    sent, limited = False, False
    while _waits(sockets, socket):
        room = int(sockets[socket].window) - sockets[socket].pipe
        came = _LIMITED
        if room > 0 and sockets[socket].lost > 0:
            came = _send_again(net, socket, room, now_s)
        elif room > 0:
            came = _send_burst(net, socket, room, now_s)
        if came == _FULL:
            _told(sockets, socket)
        if came != _TAKEN:
            limited = came == _LIMITED
            break
        sent = True
    if sent or limited:
        _used(sockets, socket, limited)
    if sent:
        if sockets[socket].due_s == NEVER or sockets[socket].probing:
            _arm(net, socket, now_s)
    elif sockets[socket].due_s == NEVER and _waits(sockets, socket) and sockets[socket].in_nic == 0:
        sockets[socket].probing = 0  # the host's own queue took nothing, and no acknowledgement will come
        _due(net, socket, now_s + _RTO_S)


@compiled
def _send_again(net: _Net, socket: int, room: int, now_s: float) -> float:
    """Send lost segments in a row again, as many as fit; return `_TAKEN`, or why not."""
    sockets, segments = net.sockets, net.segments
    base, first, count = socket * WINDOW, sockets[socket].una, 1
    while segments[base + (first & (WINDOW - 1))].flags & 1 == 0:
        first += 1
    most = min(room, _burst(net, socket), sockets[socket].lost)
    while count < most and segments[base + ((first + count) & (WINDOW - 1))].flags & 1:
        count += 1
    if _holds_enough(net, socket, count):
        return _HELD
    _skip_idle(sockets, socket, now_s)
    if not _transmit(net, socket, first, count, now_s):
        return _FULL
    for number in range(first, first + count):
        segments[base + (number & (WINDOW - 1))].flags = 4
    sockets[socket].lost -= count
    return _TAKEN


@compiled
def _send_burst(net: _Net, socket: int, room: int, now_s: float) -> float:
    """Send new segments, as many as TCP hands over at once; return `_TAKEN`, or why not."""
    sockets = net.sockets
    left = max(1, math.ceil((_unsent(net, socket) - 0.5) / net.mss))
    burst = _burst(net, socket)
    count = min(left, room, burst, WINDOW - 1 - (sockets[socket].nxt - sockets[socket].una))
    if left > 1 and _defers(net, socket, room, burst, now_s):
        return _LIMITED if room <= left else _HELD
    if count <= 0 or _holds_enough(net, socket, count):
        return _HELD
    _skip_idle(sockets, socket, now_s)
    return _TAKEN if _send_new(net, socket, count, now_s) else _FULL


@compiled
def _skip_idle(sockets: Records, socket: int, now_s: float) -> None:
    """Let CUBIC's time stand still while nothing was under way (`cubictcp_cwnd_event`)."""
    if sockets[socket].pipe == 0 and sockets[socket].epoch_s >= 0.0:
        idle_s = now_s - sockets[socket].last_s
        sockets[socket].epoch_s = min(sockets[socket].epoch_s + idle_s, now_s)


@compiled
def _used(sockets: Records, socket: int, limited: bool) -> None:
    """Note whether the window limits the sender, and the most that was under way; both hold for a round."""
    limited = limited or sockets[socket].pipe >= int(sockets[socket].window)
    out = sockets[socket].nxt - sockets[socket].una
    more = sockets[socket].limited == 0 and out > sockets[socket].most
    if limited or more or sockets[socket].una >= sockets[socket].used_to:
        sockets[socket].limited = int(limited)
        sockets[socket].most = out
        sockets[socket].used_to = sockets[socket].nxt


@compiled
def _unsent(net: _Net, socket: int) -> float:
    """Return the bytes of the first message that waits that are not sent, or else of a paced stream."""
    message = net.sockets[socket].first
    return float(net.messages[message].left if message >= 0 else net.sockets[socket].bytes)


@compiled
def _send_new(net: _Net, socket: int, count: int, now_s: float) -> bool:
    """Send so many segments of what waits; return whether they were taken."""
    sockets, messages = net.sockets, net.messages
    segments = net.segments
    message, left = sockets[socket].first, _unsent(net, socket)
    for number in range(sockets[socket].nxt, sockets[socket].nxt + count):
        place = socket * WINDOW + (number & (WINDOW - 1))
        segments[place].size = min(left, net.mss)
        segments[place].flags = segments[place].got = 0
        segments[place].mark = _NONE
        left -= segments[place].size
    if not _transmit(net, socket, sockets[socket].nxt, count, now_s):
        return False
    sockets[socket].nxt += count
    if message < 0:
        sockets[socket].bytes = left
    elif left >= 0.5:
        messages[message].left = left
    else:
        segments[socket * WINDOW + ((sockets[socket].nxt - 1) & (WINDOW - 1))].mark = messages[message].mark
        sockets[socket].first = messages[message].next
        messages[message].next = net.numbers[2]
        net.numbers[2] = message
    return True


@compiled
def _told(sockets: Records, socket: int) -> None:
    """Shrink the window since the host's own queue dropped a segment, of which TCP is told (`tcp_enter_cwr`).

    Once, until more is acknowledged than was sent by then: however often the queue drops what is tried again.
    """
    if sockets[socket].recovering == 0 and sockets[socket].told == 0:
        _reduce(sockets, socket)
        sockets[socket].recover = sockets[socket].nxt
        sockets[socket].told = 1


@compiled
def _grow(sockets: Records, socket: int, count: float, now_s: float) -> None:
    """Let the window grow by so many acknowledged segments: slow start, else CUBIC (tcp_cubic.c)."""
    window = sockets[socket].window
    if window < sockets[socket].threshold:
        sockets[socket].window = min(window + count, float(WINDOW))
        return
    sockets[socket].acked += count
    if sockets[socket].epoch_s < 0.0:
        sockets[socket].epoch_s = now_s
        sockets[socket].acked = count
        sockets[socket].friend = window
        below = max(sockets[socket].w_max - window, 0.0)
        sockets[socket].k_s = (below / _C) ** (1.0 / 3.0)
        sockets[socket].origin = window + below
    since_s = now_s - sockets[socket].epoch_s + max(sockets[socket].least_s, 0.0) - sockets[socket].k_s
    target = sockets[socket].origin + _C * since_s**3
    each = window / (target - window) if target > window else 100.0 * window
    if sockets[socket].w_max == 0.0:
        each = min(each, 20.0)
    step = window * 15.0 / 8.0
    while sockets[socket].acked > step:
        sockets[socket].acked -= step
        sockets[socket].friend += 1.0
    if sockets[socket].friend > window:
        each = min(each, window / (sockets[socket].friend - window))
    sockets[socket].window = min(window + count / max(each, 2.0), float(WINDOW))


@compiled
def _leave_slow_start(net: _Net, socket: int, rtt_s: float, now_s: float) -> None:
    """End slow start where acknowledgements tell of a queue (HyStart, `hystart_update`).

    It ends where a train of them is half as long as the least round trip, and where all round trips of a round are
    longer than that by an eighth.
    """
    sockets = net.sockets
    window, least_s = sockets[socket].window, sockets[socket].least_s
    blind = sockets[socket].epoch_s >= 0.0 and now_s - sockets[socket].epoch_s < _BLIND_S
    if window >= sockets[socket].threshold or blind:
        return
    if sockets[socket].una > sockets[socket].round_end:
        sockets[socket].round_end = sockets[socket].nxt
        sockets[socket].round_s = sockets[socket].train_s = now_s
        sockets[socket].round_least_s = NEVER
        sockets[socket].samples = 0
    if window < _LOW_WINDOW:
        return
    if now_s - sockets[socket].train_s <= _TRAIN_S:
        sockets[socket].train_s = now_s
        pace = 2.0 * window * net.mss / sockets[socket].rtt_s
        if now_s - sockets[socket].round_s > (least_s + min(_MOST_SLACK_S, _SLACK_BYTES / pace)) / 2.0:
            sockets[socket].threshold = window
    sockets[socket].round_least_s = min(sockets[socket].round_least_s, rtt_s)
    if sockets[socket].samples < _SAMPLES:
        sockets[socket].samples += 1
    elif sockets[socket].round_least_s > least_s + min(max(least_s / 8.0, _LEAST_RISE_S), _MOST_RISE_S):
        sockets[socket].threshold = window


@compiled
def _round_trip(sockets: Records, socket: int, rtt_s: float) -> None:
    """Take a measured round trip (RFC 6298, section 2)."""
    sockets[socket].var_s += (abs(rtt_s - sockets[socket].rtt_s) - sockets[socket].var_s) / 4.0
    sockets[socket].rtt_s += (rtt_s - sockets[socket].rtt_s) / 8.0
    sockets[socket].least_s = min(sockets[socket].least_s, rtt_s)


@compiled
def _left(sockets: Records, segments: Records, socket: int, place: int) -> None:
    """Note that a segment is no longer under way, or no longer lost, since it has arrived."""
    if segments[place].flags & 1:
        sockets[socket].lost -= 1
    else:
        sockets[socket].pipe -= 1


@compiled
def _acknowledged(net: _Net, socket: int, before: int, one: int, now_s: float) -> None:
    """Take an acknowledgement of all segments before a number and of one: find losses, and let the window grow."""
    sockets = net.sockets
    segments = net.segments
    base, una, count = socket * WINDOW, sockets[socket].una, 0
    place = base + (one & (WINDOW - 1))
    rtt_s = -1.0
    if una <= one < sockets[socket].nxt and segments[place].flags & 2 == 0:
        if segments[place].flags & 4 == 0:
            rtt_s = now_s - segments[place].sent_s
            _round_trip(sockets, socket, rtt_s)
        _newest(sockets, socket, one, segments[place].sent_s)
        _left(sockets, segments, socket, place)
        segments[place].flags = 2
        sockets[socket].sacked += 1
        count += 1
    advanced = una < before
    while una < before:
        place = base + (una & (WINDOW - 1))
        if segments[place].flags & 2:
            sockets[socket].sacked -= 1
        else:
            _left(sockets, segments, socket, place)
            count += 1
        segments[place].flags = 0
        una += 1
    sockets[socket].una = una
    if advanced:
        sockets[socket].backoff = sockets[socket].probed = 0
    _recovered(sockets, socket)
    lost = sockets[socket].sacked > 0 and _find_lost(sockets, segments, socket)
    if count > 0:
        if rtt_s >= 0.0:
            _leave_slow_start(net, socket, rtt_s, now_s)
        if sockets[socket].recovering == 1 or sockets[socket].told:
            _shrink(sockets, socket, count, int(advanced and not lost))
        else:
            slow = sockets[socket].window < min(sockets[socket].threshold, 2.0 * sockets[socket].most)
            if sockets[socket].limited or slow:
                _grow(sockets, socket, float(count), now_s)
        _arm(net, socket, now_s)


@compiled
def _recovered(sockets: Records, socket: int) -> None:
    """End what has shrunk the window, once all that was under way when it began is acknowledged."""
    una = sockets[socket].una
    if sockets[socket].recovering and una >= sockets[socket].recover:
        if sockets[socket].recovering == 1:
            sockets[socket].window = sockets[socket].threshold
        sockets[socket].recovering = 0
    if sockets[socket].told and una > sockets[socket].recover:
        sockets[socket].window = sockets[socket].threshold
        sockets[socket].told = 0


@compiled
def _newest(sockets: Records, socket: int, number: int, sent_s: float) -> None:
    """Note which segment was sent last of those that have arrived (RFC 8985, section 6.2)."""
    if sent_s > sockets[socket].rack_s or (sent_s == sockets[socket].rack_s and number > sockets[socket].rack):
        sockets[socket].rack_s, sockets[socket].rack = sent_s, number


@compiled
def _find_lost(sockets: Records, segments: Records, socket: int) -> bool:
    """Take for lost what was sent before a segment that has arrived; no packets overtake others here.

    Return whether anything was found.
    """
    found = False
    for number in range(sockets[socket].una, sockets[socket].nxt):
        place = socket * WINDOW + (number & (WINDOW - 1))
        before = segments[place].sent_s < sockets[socket].rack_s
        before |= segments[place].sent_s == sockets[socket].rack_s and number < sockets[socket].rack
        if before and segments[place].flags & 3 == 0:
            segments[place].flags |= 1
            sockets[socket].lost += 1
            sockets[socket].pipe -= 1
            found = True
    if found and sockets[socket].recovering == 0:
        if sockets[socket].told == 0:
            _reduce(sockets, socket)
        sockets[socket].recovering, sockets[socket].told = 1, 0
        sockets[socket].recover = sockets[socket].nxt
    return found


@compiled
def _expired(net: _Net, socket: int, now_s: float) -> None:
    """Carry out a timer: probe the tail, take what is under way for lost, or try one segment (`tcp_send_probe0`)."""
    sockets = net.sockets
    segments = net.segments
    if sockets[socket].una < sockets[socket].nxt and sockets[socket].probing:
        sockets[socket].probed = 1
        number = sockets[socket].nxt - 1
        place = socket * WINDOW + (number & (WINDOW - 1))
        if segments[place].flags & 3 == 0 and _transmit(net, socket, number, 1, now_s):
            segments[place].flags |= 4
            sockets[socket].pipe -= 1
        _arm(net, socket, now_s)
        return
    sockets[socket].due_s = NEVER
    if sockets[socket].una < sockets[socket].nxt:
        if sockets[socket].una >= sockets[socket].recover:  # else it has been reduced for what was sent by then
            _reduce(sockets, socket)
        sockets[socket].window = 1.0
        sockets[socket].recovering, sockets[socket].told = 2, 0
        sockets[socket].recover = sockets[socket].nxt
        sockets[socket].backoff += 1
        for number in range(sockets[socket].una, sockets[socket].nxt):
            place = socket * WINDOW + (number & (WINDOW - 1))
            if segments[place].flags & 3 == 0:
                segments[place].flags |= 1
                sockets[socket].lost += 1
                sockets[socket].pipe -= 1
        _arm(net, socket, now_s)
    elif _waits(sockets, socket):
        if _send_new(net, socket, 1, now_s):
            _arm(net, socket, now_s)
        else:
            _due(net, socket, now_s + _AGAIN_S)
        return
    _send(net, socket, now_s)


@compiled
def _put(net: _Net, socket: int, size: float, mark: int) -> bool:
    """Have a message wait on a connection; return whether there was room for it."""
    sockets, messages = net.sockets, net.messages
    message = net.numbers[2]
    if message < 0:
        return False
    net.numbers[2] = messages[message].next
    messages[message].next = -1
    messages[message].left = max(size, 1.0)
    messages[message].mark = mark
    if sockets[socket].first < 0:
        sockets[socket].first = message
    else:
        messages[sockets[socket].last].next = message
    sockets[socket].last = message
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
            seconds = machine.duration_s(tasks, task, net.costs[2], now_s)
            if seconds > 0.0 or again:
                machine.push(net.heap, now_s + seconds, _code(_TASK, 0, 0, task))
            else:
                net.numbers[0] = machine.ended(tasks, task, now_s, net.ready, net.numbers[0])
            continue
        path = net.sockets[socket].path
        if queues.paths[path].first == queues.paths[path].end:
            there_s = _dealt_with(net, tasks.messages[task], now_s)
            there_s += machine.round_s(net.costs, 0) * tasks.messages[task] + net.costs[1] * tasks.size[task]
            machine.push(net.heap, there_s, _code(_TASK, 0, 0, task))
            continue
        # Where the host's own queue takes nothing of the message, the notice's acknowledgement has TCP try again.
        announced = net.notice == 0.0 or _put(net, socket, net.notice, _NOTICE)
        if not (announced and _put(net, socket, tasks.size[task], task)):
            return False
        _send(net, socket, now_s)
    return True


@compiled
def _hop(net: _Net, kind: int, hop: int, socket: int, number: int, path: int, wire: float, now_s: float) -> bool:
    """Pass a packet on to the next link of its path; return False where it has no further one."""
    queues = net.queues
    link, end = queues.paths[path].first + hop, queues.paths[path].end
    at_s, late = now_s, 0
    if link < end:
        at_s = _pass(queues.links, queues.hops[link], wire, now_s)
        if at_s < 0.0:
            return True
        at_s += queues.links[queues.hops[link]].gap_s
        late = queues.links[queues.hops[link]].late
    elif link > end or queues.paths[path].delay_s <= 0.0:
        return False
    else:
        at_s += queues.paths[path].delay_s
    machine.push(net.heap, at_s, _code(kind, (hop + 1) | (late << 3), socket, number))
    return True


@compiled
def _arrived(net: _Net, socket: int, number: int, now_s: float) -> None:
    """Receive a segment, and acknowledge every second one; at once where one is missing or a message ends."""
    sockets, acks = net.sockets, net.acks
    segments = net.segments
    place = socket * WINDOW + (number & (WINDOW - 1))
    at_once = number != sockets[socket].rcv or sockets[socket].window < 4.0
    if number >= sockets[socket].rcv:
        segments[place].got = 1
    while sockets[socket].rcv < sockets[socket].nxt:
        place = socket * WINDOW + (sockets[socket].rcv & (WINDOW - 1))
        if segments[place].got == 0:
            break
        segments[place].got = 0
        mark = segments[place].mark
        if mark != _NONE:
            at_once = True
            if mark >= 0:
                messages, way = net.tasks.messages[mark], net.queues.paths[sockets[socket].path]
                there_s = _dealt_with(net, messages, now_s) + machine.round_s(net.costs, way.end - way.first) * messages
                machine.push(net.heap, there_s, _code(_TASK, 0, 0, mark))
        sockets[socket].rcv += 1
    sockets[socket].owed += 1
    if at_once or sockets[socket].owed >= 2:
        sockets[socket].owed = 0
        ticket = net.numbers[3] & (_ACKS - 1)
        net.numbers[3] += 1
        acks[ticket].before, acks[ticket].one = sockets[socket].rcv, number
        _hop(net, _ACK, 0, socket, ticket, net.queues.paths[sockets[socket].path].back, float(HEADER), now_s)


@compiled
def _passed_on(net: _Net, hop: int, late: int, socket: int, number: int, now_s: float) -> None:
    """Pass a segment on that has left a link, or receive it."""
    sockets = net.sockets
    wire = net.segments[socket * WINDOW + (number & (WINDOW - 1))].size + HEADER
    if hop == 1:
        sockets[socket].in_nic -= 1
        if _waits(sockets, socket):
            _send(net, socket, now_s)
    _charge(net, sockets[socket].path, hop, late, wire, now_s)
    there = not _hop(net, _DATA, hop, socket, number, sockets[socket].path, wire, now_s)
    if there and sockets[socket].mute == 0:
        _arrived(net, socket, number, now_s)
        twin = sockets[socket].twin
        if twin >= 0 and _waits(sockets, twin):
            _send(net, twin, now_s)  # whatever comes in has TCP try again (`tcp_data_snd_check`)


@compiled
def _happen(net: _Net, code: int, connections: int, now_s: float) -> None:
    """Carry out an event."""
    sockets = net.sockets
    kind, hop, socket, number = code & 3, (code >> 2) & 7, (code >> 6) & 0x3FFFFF, code >> 28
    late = (code >> 5) & 1
    if kind == _TASK:
        net.numbers[0] = machine.ended(net.tasks, number, now_s, net.ready, net.numbers[0])
        sender = net.tasks.connection[number]
        if sender >= 0 and _waits(sockets, sender):
            _send(net, sender, now_s)  # a receiver tells that it is ready for more
    elif kind == _DATA:
        _passed_on(net, hop, late, socket, number, now_s)
    elif kind == _ACK:
        back = net.queues.paths[sockets[socket].path].back
        _charge(net, back, hop, late, float(HEADER), now_s)
        if _hop(net, kind, hop, socket, number, back, float(HEADER), now_s) or sockets[socket].bytes < 0.0:
            return
        _acknowledged(net, socket, net.acks[number].before, net.acks[number].one, now_s)
        whole = sockets[socket].una == sockets[socket].nxt and sockets[socket].first < 0
        if whole and socket >= connections:
            sockets[socket].bytes = -1.0
            sockets[socket].due_s = NEVER
            net.fresh[net.numbers[1]] = socket
            net.numbers[1] += 1
        else:
            _send(net, socket, now_s)
    else:
        sockets[socket].event_s = NEVER
        if sockets[socket].due_s <= now_s + 1e-9:
            _expired(net, socket, now_s)
        elif sockets[socket].due_s < NEVER:
            _due(net, socket, sockets[socket].due_s)


@compiled
def _come(net: _Net, arrivals: Arrivals, coming: int, now_s: float) -> bool:
    """Begin a flow of cross traffic, or add to a stream; return whether there was room for it."""
    sockets = net.sockets
    socket = arrivals.connection[coming]
    if arrivals.mute[coming]:
        number = sockets[socket].nxt
        net.segments[socket * WINDOW + (number & (WINDOW - 1))].size = arrivals.size[coming]
        sockets[socket].nxt += 1
        sockets[socket].mute = 1
        _transmit(net, socket, number, 1, now_s)
        return True
    if socket >= 0:
        sockets[socket].bytes += arrivals.size[coming]
    else:
        if net.numbers[1] == 0:
            return False
        net.numbers[1] -= 1
        socket = net.fresh[net.numbers[1]]
        _dealt_with(net, 1.0, now_s)
        _open(sockets, net.queues.paths, socket, arrivals.path[coming])
        if not _put(net, socket, arrivals.size[coming], _FLOW):
            return False
    _send(net, socket, now_s)
    return True


@compiled
def _run(net: _Net, arrivals: Arrivals, reroutes: Reroutes, connections: int, wanted: int, until_s: float) -> int:
    """Carry out the graphs until every job has done `wanted` iterations; return 0, or what stopped it."""
    tasks, heap = net.tasks, net.heap
    room = len(heap.at_s) - 64
    coming, rerouted, now_s, window_s = 0, 0, 0.0, NEVER
    net.numbers[0] = machine.start(tasks, net.ready)
    while not machine.have_done(tasks, wanted):
        while net.numbers[0] > 0:
            net.numbers[0] -= 1
            if not _begin(net, net.ready[net.numbers[0]], now_s):
                return OVERLOADED
        if machine.have_done(tasks, wanted):
            break
        if heap.held[0] > room:
            return OVERLOADED
        then_s = heap.at_s[0] if heap.held[0] > 0 else NEVER
        if window_s == NEVER and machine.have_done(tasks, reroutes.warmup):
            window_s = now_s
        while rerouted < len(reroutes.at_s) and window_s + reroutes.at_s[rerouted] <= then_s:
            path = net.queues.paths[reroutes.path[rerouted]]
            path.first, path.end = reroutes.first[rerouted], reroutes.end[rerouted]
            rerouted += 1
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
def _open(sockets: Records, paths: Records, socket: int, path: int) -> None:
    """Begin a connection, after a handshake on idle links.

    Its segments go on being numbered where those of the one before ended.
    """
    sockets[socket].path = path
    sockets[socket].una = sockets[socket].rcv = sockets[socket].recover = sockets[socket].nxt
    sockets[socket].owed = sockets[socket].pipe = sockets[socket].lost = sockets[socket].sacked = 0
    sockets[socket].recovering = sockets[socket].told = 0
    sockets[socket].backoff = sockets[socket].probed = sockets[socket].probing = 0
    sockets[socket].limited = sockets[socket].most = sockets[socket].samples = 0
    sockets[socket].used_to = sockets[socket].nxt
    sockets[socket].window, sockets[socket].threshold = _INITIAL_WINDOW, NEVER
    sockets[socket].rtt_s = sockets[socket].least_s = _IDLE_S + paths[path].delay_s + paths[paths[path].back].delay_s
    sockets[socket].var_s = sockets[socket].rtt_s / 2.0
    sockets[socket].rack_s = sockets[socket].w_max = 0.0
    sockets[socket].rack = sockets[socket].twin = -1
    sockets[socket].epoch_s = sockets[socket].last_s = -1.0
    sockets[socket].due_s = NEVER
    sockets[socket].round_end = sockets[socket].nxt
    sockets[socket].bytes = 0.0
    sockets[socket].first = -1


def _twins(path_of: Ints, paths: Records) -> Iterator[tuple[int, int]]:
    """Yield each connection with that of the other direction: ranks send to each other over one."""
    of_path: dict[int, list[int]] = {}
    for number, path in enumerate(path_of.tolist()):
        of_path.setdefault(path, []).append(number)
    for path, numbers in of_path.items():
        yield from zip(numbers, of_path.get(int(paths[path]["back"]), []), strict=False)


def run(
    tasks: Tasks,
    queues: Queues,
    arrivals: Arrivals,
    reroutes: Reroutes,
    path_of: Ints,
    *,
    wanted: int,
    until_s: float,
    costs: Floats,
    mss: float,
    notice: float,
) -> int:
    """Simulate until every job has done `wanted` iterations; return 0, OVERLOADED, or LATE if `until_s` came first.

    `path_of` is the path of each connection; `mss` is the payload of a full segment; `notice` are the bytes that go
    before each message of a rank. `costs` are the seconds of a message, of a byte of one within a host, and by how
    much computing is late; what processors that all hosts share need for a byte that is sent, by how much they fall
    behind then at most, and what they need for a message; of a message within a host; and what each link after the
    second one adds to a message.
    """
    connections = len(path_of)
    count = connections + MOST_FLOWS
    sockets = np.zeros(count, _SOCKET)
    sockets["event_s"] = np.inf
    for number, path in enumerate(path_of):
        _open(sockets, queues.paths, number, path)
    for number, twin in _twins(path_of, queues.paths):
        sockets[number]["twin"] = twin
    entries = max(4096, 8 * len(tasks.owner) + 2 * MOST_FLOWS)
    messages = np.zeros(entries, _MESSAGE)
    messages["next"] = np.append(np.arange(1, entries), -1)
    most = 4 * len(tasks.owner) + 4 * _ACKS
    net = _Net(
        tasks=tasks,
        queues=queues,
        sockets=sockets,
        segments=np.zeros(count * WINDOW, _SEGMENT),
        messages=messages,
        acks=np.zeros(_ACKS, _ACK_OF),
        heap=Heap(np.zeros(most), np.zeros(most, np.int64), np.zeros(1, np.int64)),
        ready=np.zeros(len(tasks.owner) + 1, np.int64),
        fresh=np.arange(connections, count),
        numbers=np.array([0, MOST_FLOWS, 0, 0]),
        costs=costs,
        mss=mss,
        notice=notice,
    )
    return int(call(_run, net, arrivals, reroutes, connections, wanted, until_s))
