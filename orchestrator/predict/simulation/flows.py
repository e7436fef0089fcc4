"""Simulate at the grain of flows: transfers and cross traffic share links by max-min fairness, from event to event.

Rates are those of progressive filling (Bertsekas and Gallager, "Data Networks", 6.5.2): all flows that share a link
grow alike until a link is full. A connection carries one message after the other and counts as one flow; a flow of
cross traffic on a new connection is one, too. Queues, losses and time-outs are not known here: see `packets`.
"""

from __future__ import annotations

# ruff: noqa: C901, PLR0912, PLR0917 - compiled: calls hand over every word of every array
from typing import NamedTuple

import numpy as np

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

_MOST_FLOWS = 4096  # that are under way at once
_LEAST_RATE = 1e-3  # bytes a second
_TOGETHER_S = 1e-9  # what is to happen within this time happens at once


class Links(NamedTuple):
    """Rates of links, and the links of each path; a connection has one path for good."""

    rate: Floats  # bytes a second
    first: Ints  # entry in `hop` of each path
    end: Ints  # entry after its last one
    hop: Ints
    delay_s: Floats  # of each path, beside its queues
    carried: Floats  # bytes that each link has carried


class _Waiting(NamedTuple):
    """Messages that wait on connections: the next one, and its task."""

    next: Ints
    task: Ints
    first: Ints  # of each connection, -1 for none
    last: Ints
    free: Ints  # one number


class _Flows(NamedTuple):
    """Flows under way, in slots: the first ones belong to connections, the others to flows on new ones."""

    path: Ints
    left: Floats  # bytes
    rate: Floats  # bytes a second
    since_s: Floats  # when `left` was true
    ends_s: Floats
    task: Ints  # -1 of cross traffic
    place: Ints  # among those that are active, -1 if it is not
    active: Ints  # a heap, what ends first before all others
    after: Ints  # of a slot on a link (slot * hops + hop): the next one there, -1 for none
    before: Ints
    head: Ints  # of each link
    dirty: Ints  # links whose flows have changed, then a mark of each link
    numbers: Ints  # how many are active, how many links are dirty


class _Net(NamedTuple):
    """All that a simulation changes, and what it costs."""

    tasks: Tasks
    links: Links
    flows: _Flows
    waiting: _Waiting
    heap: Heap
    ready: Ints  # tasks that can begin
    fresh: Ints  # slots without a flow
    numbers: Ints  # how many tasks are ready, how many slots are fresh
    room: Floats  # of each link, while rates are found
    growing: Ints  # flows on each link whose rates are not found yet
    fixed: Ints  # whether a slot's rate is found
    moved: Ints  # slots that are active while a path changes
    rest: Floats  # bytes of a slot that are left then
    alone: Floats  # bytes a second of a connection that shares none of its links, else 0
    free_s: Floats  # when such a connection has sent what has begun
    costs: Floats  # in seconds, as `run` has them
    processors: Floats  # that all hosts share: by how much they are behind, since when, and the bytes a second now
    hops: int  # the most links of a path


@compiled
def _sift(flows: _Flows, slot: int) -> None:
    """Put an active flow where it belongs among the others, by when it ends."""
    place, ends_s = flows.place[slot], flows.ends_s[slot]
    while place > 0:
        other = flows.active[(place - 1) >> 1]
        if flows.ends_s[other] <= ends_s:
            break
        flows.active[place] = other
        flows.place[other] = place
        place = (place - 1) >> 1
    while True:
        below = 2 * place + 1
        if below >= flows.numbers[0]:
            break
        if below + 1 < flows.numbers[0]:
            below += flows.ends_s[flows.active[below + 1]] < flows.ends_s[flows.active[below]]
        other = flows.active[below]
        if flows.ends_s[other] >= ends_s:
            break
        flows.active[place] = other
        flows.place[other] = place
        place = below
    flows.active[place] = slot
    flows.place[slot] = place


@compiled
def _begin(net: _Net, slot: int, size: float, task: int, now_s: float) -> None:
    """Put a flow onto the links of its slot's path; its rate is not found yet."""
    flows, links = net.flows, net.links
    flows.left[slot], flows.rate[slot], flows.since_s[slot] = size, 0.0, now_s
    flows.ends_s[slot], flows.task[slot] = NEVER, task
    flows.place[slot] = flows.numbers[0]
    flows.active[flows.numbers[0]] = slot
    flows.numbers[0] += 1
    first = links.first[flows.path[slot]]
    for hop in range(links.end[flows.path[slot]] - first):
        link, code = links.hop[first + hop], slot * net.hops + hop
        flows.after[code], flows.before[code] = flows.head[link], -1
        if flows.head[link] >= 0:
            flows.before[flows.head[link]] = code
        flows.head[link] = code
        _mark(flows, link)


@compiled
def _mark(flows: _Flows, link: int) -> None:
    """Note that rates on a link are to be found anew."""
    half = len(flows.dirty) // 2
    if flows.dirty[half + link] == 0:
        flows.dirty[half + link] = 1
        flows.dirty[flows.numbers[1]] = link
        flows.numbers[1] += 1


@compiled
def _end(net: _Net, slot: int) -> None:
    """Take a flow off its links."""
    flows, links = net.flows, net.links
    net.processors[2] -= flows.rate[slot]
    flows.numbers[0] -= 1
    last = flows.active[flows.numbers[0]]
    if last != slot:
        flows.place[last] = flows.place[slot]
        _sift(flows, last)
    flows.place[slot] = -1
    first = links.first[flows.path[slot]]
    for hop in range(links.end[flows.path[slot]] - first):
        link, code = links.hop[first + hop], slot * net.hops + hop
        links.carried[link] += flows.left[slot]
        after, before = flows.after[code], flows.before[code]
        if before >= 0:
            flows.after[before] = after
        else:
            flows.head[link] = after
        if after >= 0:
            flows.before[after] = before
        _mark(flows, link)


@compiled
def _reach(net: _Net) -> None:
    """Find all links that share a flow, directly or by others, with one whose flows have changed; count their flows."""
    flows, links = net.flows, net.links
    at = 0
    while at < flows.numbers[1]:  # the list grows by the links of flows that are found
        link = flows.dirty[at]
        at += 1
        net.room[link], net.growing[link] = links.rate[link], 0
        code = flows.head[link]
        while code >= 0:
            slot = code // net.hops
            net.fixed[slot] = 0
            net.growing[link] += 1
            for other in range(links.first[flows.path[slot]], links.end[flows.path[slot]]):
                _mark(flows, links.hop[other])
            code = flows.after[code]


@compiled
def _share(net: _Net, now_s: float) -> None:
    """Find the rates of all flows that a change reaches, the fullest link first."""
    _reach(net)
    flows = net.flows
    half = len(flows.dirty) // 2
    while True:
        share, full = NEVER, -1
        for link in flows.dirty[: flows.numbers[1]]:
            if net.growing[link] > 0 and net.room[link] < share * net.growing[link]:
                share, full = net.room[link] / net.growing[link], link
        if full < 0:
            break
        code = flows.head[full]
        while code >= 0:
            if net.fixed[code // net.hops] == 0:
                _fix(net, code // net.hops, max(share, _LEAST_RATE), now_s)
            code = flows.after[code]
    for link in flows.dirty[: flows.numbers[1]]:
        flows.dirty[half + link] = 0
    flows.numbers[1] = 0


@compiled
def _fix(net: _Net, slot: int, share: float, now_s: float) -> None:
    """Give a flow its rate, and take that from the room of its links."""
    flows, links = net.flows, net.links
    net.fixed[slot] = 1
    sent = flows.rate[slot] * (now_s - flows.since_s[slot])
    changed = abs(flows.rate[slot] - share) > 1e-9 * share
    for other in range(links.first[flows.path[slot]], links.end[flows.path[slot]]):
        net.growing[links.hop[other]] -= 1
        net.room[links.hop[other]] -= share
        if changed:
            links.carried[links.hop[other]] += sent
    if changed:
        flows.left[slot] -= sent
        net.processors[2] += share - flows.rate[slot]
        flows.rate[slot], flows.since_s[slot] = share, now_s
        flows.ends_s[slot] = now_s + max(flows.left[slot], 0.0) / share
        _sift(flows, slot)


@compiled
def _cost_s(net: _Net, slot: int, task: int) -> float:
    """Return how long after its last byte has left a message of a connection is there, in seconds."""
    path = net.flows.path[slot]
    each_s = machine.round_s(net.costs, net.links.end[path] - net.links.first[path]) + net.links.delay_s[path]
    net.processors[0] += net.costs[5] * net.tasks.messages[task]
    return float(each_s * net.tasks.messages[task] + net.processors[0])


@compiled
def _fall_behind(net: _Net, now_s: float) -> None:
    """Have the processors that all hosts share fall behind what is sent, or catch up, until now."""
    behind_s, since_s, rate = net.processors
    then_s = behind_s + (net.costs[3] * rate - 1.0) * (now_s - since_s)
    net.processors[0] = max(0.0, min(then_s, max(behind_s, net.costs[4])))
    net.processors[1] = now_s


@compiled
def _start(net: _Net, task: int, now_s: float) -> bool:
    """Begin a task that can; return whether there was room for it."""
    tasks, links, waiting = net.tasks, net.links, net.waiting
    again = True
    while again:
        again = machine.take(tasks, task)
        slot = tasks.connection[task]
        if slot < 0:
            seconds = machine.duration_s(tasks, task, net.costs[2], now_s)
            if seconds > 0.0 or again:
                machine.push(net.heap, now_s + seconds, task)
            else:
                net.numbers[0] = machine.ended(tasks, task, now_s, net.ready, net.numbers[0])
        elif links.first[net.flows.path[slot]] == links.end[net.flows.path[slot]]:
            inside_s = _cost_s(net, slot, task) + net.costs[1] * tasks.size[task]
            machine.push(net.heap, now_s + inside_s, task)
        elif net.alone[slot] > 0.0:
            net.free_s[slot] = max(now_s, net.free_s[slot]) + tasks.size[task] / net.alone[slot]
            for hop in range(links.first[net.flows.path[slot]], links.end[net.flows.path[slot]]):
                links.carried[links.hop[hop]] += tasks.size[task]
            machine.push(net.heap, net.free_s[slot] + _cost_s(net, slot, task), task)
        elif net.flows.place[slot] < 0:
            _begin(net, slot, tasks.size[task], task, now_s)
        else:
            entry = waiting.free[0]
            if entry < 0:
                return False
            waiting.free[0] = waiting.next[entry]
            waiting.next[entry], waiting.task[entry] = -1, task
            if waiting.first[slot] < 0:
                waiting.first[slot] = entry
            else:
                waiting.next[waiting.last[slot]] = entry
            waiting.last[slot] = entry
    return True


@compiled
def _finish(net: _Net, connections: int, now_s: float, soon_s: float) -> None:
    """End the flows that have nothing left; the next message of a connection begins."""
    flows, waiting = net.flows, net.waiting
    while flows.numbers[0] > 0 and flows.ends_s[flows.active[0]] <= soon_s:
        slot = flows.active[0]
        task = flows.task[slot]
        _end(net, slot)
        if task >= 0:
            machine.push(net.heap, now_s + _cost_s(net, slot, task), task)
        if slot >= connections:
            net.fresh[net.numbers[1]] = slot
            net.numbers[1] += 1
        elif waiting.first[slot] >= 0:
            entry = waiting.first[slot]
            waiting.first[slot] = waiting.next[entry]
            waiting.next[entry], waiting.free[0] = waiting.free[0], entry
            _begin(net, slot, net.tasks.size[waiting.task[entry]], waiting.task[entry], now_s)


@compiled
def _come(net: _Net, arrivals: Arrivals, coming: int, now_s: float) -> bool:
    """Begin a flow of cross traffic, or add to a stream; return whether there was room for it."""
    flows = net.flows
    slot, size = arrivals.connection[coming], arrivals.size[coming]
    if slot < 0:
        if net.numbers[1] == 0:
            return False
        net.numbers[1] -= 1
        slot = net.fresh[net.numbers[1]]
        flows.path[slot] = arrivals.path[coming]
        net.processors[0] += net.costs[5]
    if flows.place[slot] < 0:
        _begin(net, slot, size, -1, now_s)
        return True
    flows.left[slot] += size  # of a paced stream: its bytes join those that it still has to send
    if flows.rate[slot] > 0.0:
        flows.ends_s[slot] += size / flows.rate[slot]
        _sift(flows, slot)
    return True


@compiled
def _reroute(net: _Net, reroutes: Reroutes, number: int, now_s: float) -> None:
    """Have a path take other links, and the flows that are under way on it with it."""
    flows, links, path = net.flows, net.links, reroutes.path[number]
    count = flows.numbers[0]
    for at in range(count):
        net.moved[at] = flows.active[at]
    for slot in net.moved[:count]:
        if flows.path[slot] == path:
            sent = min(flows.left[slot], flows.rate[slot] * (now_s - flows.since_s[slot]))
            net.rest[slot] = flows.left[slot] - sent
            flows.left[slot] = sent
            _end(net, slot)
    links.first[path], links.end[path] = reroutes.first[number], reroutes.end[number]
    for slot in net.moved[:count]:
        if flows.path[slot] == path:
            _begin(net, slot, net.rest[slot], flows.task[slot], now_s)


@compiled
def _run(net: _Net, arrivals: Arrivals, reroutes: Reroutes, connections: int, wanted: int, until_s: float) -> int:
    """Carry out the graphs until every job has done `wanted` iterations; return 0, or what stopped it."""
    tasks, heap, flows = net.tasks, net.heap, net.flows
    now_s, coming, rerouted, window_s = 0.0, 0, 0, NEVER
    net.numbers[0] = machine.start(tasks, net.ready)
    while not machine.have_done(tasks, wanted):
        while net.numbers[0] > 0:
            net.numbers[0] -= 1
            if not _start(net, net.ready[net.numbers[0]], now_s):
                return OVERLOADED
        if machine.have_done(tasks, wanted):
            break
        if flows.numbers[1] > 0:
            _share(net, now_s)
        then_s = heap.at_s[0] if heap.held[0] > 0 else NEVER
        if coming < len(arrivals.at_s):
            then_s = min(then_s, arrivals.at_s[coming])
        if flows.numbers[0] > 0:
            then_s = min(then_s, flows.ends_s[flows.active[0]])
        if window_s == NEVER and machine.have_done(tasks, reroutes.warmup):
            window_s = now_s
        if rerouted < len(reroutes.at_s):
            then_s = min(then_s, window_s + reroutes.at_s[rerouted])
        if then_s > until_s:
            return LATE
        now_s = max(now_s, then_s)
        _fall_behind(net, now_s)
        soon_s = now_s + _TOGETHER_S
        _finish(net, connections, now_s, soon_s)
        while rerouted < len(reroutes.at_s) and window_s + reroutes.at_s[rerouted] <= soon_s:
            _reroute(net, reroutes, rerouted, now_s)
            rerouted += 1
        while coming < len(arrivals.at_s) and arrivals.at_s[coming] <= soon_s:
            if not _come(net, arrivals, coming, now_s):
                return OVERLOADED
            coming += 1
        while heap.held[0] > 0 and heap.at_s[0] <= soon_s:
            net.numbers[0] = machine.ended(tasks, machine.pop(heap), now_s, net.ready, net.numbers[0])
    return 0


def run(
    tasks: Tasks,
    links: Links,
    arrivals: Arrivals,
    reroutes: Reroutes,
    path_of: Ints,
    *,
    wanted: int,
    until_s: float,
    costs: Floats,
) -> int:
    """Simulate until every job has done `wanted` iterations; return 0, OVERLOADED, or LATE if `until_s` came first.

    `path_of` is the path of each connection. `costs` are the seconds of a message, of a byte of one within a host, and
    by how much computing is late; what processors that all hosts share need for a byte that is sent, by how much they
    fall behind then at most, and what they need for a message; of a message within a host; and what each link after the
    second one adds to a message.
    """
    connections = len(path_of)
    slots = connections + _MOST_FLOWS
    hops = max(1, int((links.end - links.first).max(initial=1)))
    entries = max(1024, 4 * len(tasks.owner))
    most = 4 * len(tasks.owner) + 1024
    count = len(links.rate)
    none = np.full(slots * hops, -1, np.int64)
    net = _Net(
        tasks=tasks,
        links=links,
        flows=_Flows(
            path=np.append(path_of, np.zeros(_MOST_FLOWS, np.int64)),
            left=np.zeros(slots),
            rate=np.zeros(slots),
            since_s=np.zeros(slots),
            ends_s=np.full(slots, np.inf),
            task=np.full(slots, -1, np.int64),
            place=np.full(slots, -1, np.int64),
            active=np.zeros(slots, np.int64),
            after=none,
            before=none.copy(),
            head=np.full(count, -1, np.int64),
            dirty=np.zeros(2 * count, np.int64),
            numbers=np.zeros(2, np.int64),
        ),
        waiting=_Waiting(
            next=np.append(np.arange(1, entries), -1),
            task=np.zeros(entries, np.int64),
            first=np.full(connections, -1, np.int64),
            last=np.full(connections, -1, np.int64),
            free=np.zeros(1, np.int64),
        ),
        heap=Heap(np.zeros(most), np.zeros(most, np.int64), np.zeros(1, np.int64)),
        ready=np.zeros(len(tasks.owner) + 1, np.int64),
        fresh=np.arange(connections, slots),
        numbers=np.array([0, _MOST_FLOWS]),
        room=np.zeros(count),
        growing=np.zeros(count, np.int64),
        fixed=np.zeros(slots, np.int64),
        moved=np.zeros(slots, np.int64),
        rest=np.zeros(slots),
        alone=np.zeros(connections) if costs[3] else _alone(links, arrivals, reroutes, path_of),
        free_s=np.zeros(connections),
        costs=costs,
        processors=np.zeros(3),
        hops=hops,
    )
    stopped = int(call(_run, net, arrivals, reroutes, connections, wanted, until_s))
    if not stopped:
        end_s = tasks.ended_s[tasks.first, wanted - 1].max()
        for slot in np.flatnonzero(net.free_s > end_s):  # what has begun was counted whole
            path = path_of[slot]
            left = (net.free_s[slot] - end_s) * net.alone[slot]
            links.carried[links.hop[links.first[path] : links.end[path]]] -= left
    return stopped


def _alone(links: Links, arrivals: Arrivals, reroutes: Reroutes, path_of: Ints) -> Floats:
    """Return the rate of each connection in bytes a second where nothing else ever crosses its links, else 0.

    Such a connection sends one message after the other: when each has left is known as it begins.
    """
    found = np.zeros(len(path_of))
    if len(reroutes.at_s):
        return found
    crossed = np.zeros(len(links.rate), np.int64)
    for path in (*path_of, *np.unique(arrivals.path[arrivals.connection < 0])):
        crossed[links.hop[links.first[path] : links.end[path]]] += 1
    for number, path in enumerate(path_of):
        hops = links.hop[links.first[path] : links.end[path]]
        if len(hops) and crossed[hops].max() == 1:
            found[number] = max(links.rate[hops].min(), _LEAST_RATE)
    return found
