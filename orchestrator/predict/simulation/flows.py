"""Simulate at the grain of flows: transfers and cross traffic share links by max-min fairness, from event to event.

Rates are those of progressive filling (Bertsekas and Gallager, "Data Networks", 6.5.2): all flows that share a link
grow alike until a link is full. A connection carries one message after the other and counts as one flow; a flow of
cross traffic on a new connection is one, too. Queues, losses and time-outs are not known here: see `packets`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from orchestrator.predict.simulation import machine
from orchestrator.predict.simulation.machine import Floats, Heap, Ints, Tasks, compiled

OVERLOADED, LATE = 1, 2  # what stops a simulation before its end
_MOST_FLOWS = 4096  # that are under way at once
_NEVER = np.inf


class Links(NamedTuple):
    """Rates of links, and the links of each path; a connection has one path for good."""

    rate: Floats  # bytes a second
    hop_of: Ints  # the first entry in `hop` of each path; one more entry ends them
    hop: Ints
    delay_s: Floats  # of each path, beside its queues
    carried: Floats  # bytes that each link has carried


class Arrivals(NamedTuple):
    """Cross traffic in the order of its instants: bytes on the wire, path, and its connection, -1 of a new one."""

    at_s: Floats
    size: Floats
    path: Ints
    connection: Ints


class _Flows(NamedTuple):
    """Flows under way, in slots: the first ones belong to connections, the others to flows on new ones."""

    path: Ints
    left: Floats  # bytes
    rate: Floats  # bytes a second
    since_s: Floats  # when `left` was true
    ends_s: Floats
    task: Ints  # -1 of cross traffic
    place: Ints  # among those that are active, -1 if it is not
    active: Ints
    after: Ints  # of a slot on a link (slot * hops + hop): the next one there, -1 for none
    before: Ints
    head: Ints  # of each link
    dirty: Ints  # links whose flows have changed, then a mark of each link
    numbers: Ints  # how many are active, how many links are dirty


@compiled
def _begin(flows: _Flows, links: Links, slot: int, size: float, task: int, now_s: float, hops: int) -> None:
    flows.left[slot], flows.rate[slot], flows.since_s[slot] = size, 0.0, now_s
    flows.ends_s[slot], flows.task[slot] = _NEVER, task
    flows.place[slot] = flows.numbers[0]
    flows.active[flows.numbers[0]] = slot
    flows.numbers[0] += 1
    path = flows.path[slot]
    first = links.hop_of[path]
    for hop in range(links.hop_of[path + 1] - first):
        link, code = links.hop[first + hop], slot * hops + hop
        flows.after[code] = flows.head[link]
        flows.before[code] = -1
        if flows.head[link] >= 0:
            flows.before[flows.head[link]] = code
        flows.head[link] = code
        links.carried[link] += size
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
def _end(flows: _Flows, links: Links, slot: int, hops: int) -> None:
    last = flows.active[flows.numbers[0] - 1]
    flows.active[flows.place[slot]] = last
    flows.place[last] = flows.place[slot]
    flows.place[slot] = -1
    flows.numbers[0] -= 1
    path = flows.path[slot]
    first = links.hop_of[path]
    for hop in range(links.hop_of[path + 1] - first):
        link, code = links.hop[first + hop], slot * hops + hop
        after, before = flows.after[code], flows.before[code]
        if before >= 0:
            flows.after[before] = after
        else:
            flows.head[link] = after
        if after >= 0:
            flows.before[after] = before
        _mark(flows, link)


@compiled
def _share(flows: _Flows, links: Links, now_s: float, hops: int, room: Floats, growing: Ints, fixed: Ints) -> None:
    """Find the rates of all flows that share a link, directly or by others, with a link whose flows have changed."""
    half = len(flows.dirty) // 2
    at = 0
    while at < flows.numbers[1]:  # the list grows by the links of flows that are found
        link = flows.dirty[at]
        at += 1
        room[link], growing[link] = links.rate[link], 0
        code = flows.head[link]
        while code >= 0:
            slot = code // hops
            fixed[slot] = 0
            growing[link] += 1
            path = flows.path[slot]
            for other in range(links.hop_of[path], links.hop_of[path + 1]):
                _mark(flows, links.hop[other])
            code = flows.after[code]
    count = flows.numbers[1]
    while True:
        share, full = _NEVER, -1
        for at in range(count):
            link = flows.dirty[at]
            if growing[link] > 0 and room[link] < share * growing[link]:
                share, full = room[link] / growing[link], link
        if full < 0:
            break
        share = max(share, 1e-3)
        code = flows.head[full]
        while code >= 0:
            slot = code // hops
            if fixed[slot] == 0:
                fixed[slot] = 1
                path = flows.path[slot]
                for other in range(links.hop_of[path], links.hop_of[path + 1]):
                    growing[links.hop[other]] -= 1
                    room[links.hop[other]] -= share
                if abs(flows.rate[slot] - share) > 1e-9 * share:
                    flows.left[slot] -= flows.rate[slot] * (now_s - flows.since_s[slot])
                    flows.rate[slot], flows.since_s[slot] = share, now_s
                    flows.ends_s[slot] = now_s + max(flows.left[slot], 0.0) / share
            code = flows.after[code]
    for at in range(count):
        flows.dirty[half + flows.dirty[at]] = 0
    flows.numbers[1] = 0


@compiled
def _run(
    tasks: Tasks,
    links: Links,
    arrivals: Arrivals,
    flows: _Flows,
    heap: Heap,
    queue: Ints,
    queued: Floats,
    wanted: int,
    judge: int,
    until_s: float,
    costs: Floats,
    hops: int,
) -> int:
    """Carry out the graphs until rank `judge` has done `wanted` iterations; return 0, or what stopped it.

    `queue` is the memory of what waits on connections: first and last of each connection, then of each entry the next
    one and its task; `queued` has the sizes of entries. `costs` are the seconds of a message, of a byte of it, of one
    within a host, and by how much computing is late.
    """
    connections = (len(queue) - 2 * len(queued)) // 2
    next_of = 2 * connections  # where entries begin
    entries = len(queued)
    for entry in range(entries):
        queue[next_of + entry] = entry + 1
    free = 0
    slots = len(flows.path)
    fresh = np.arange(connections, slots)
    unused = len(fresh)
    ready = np.empty(len(tasks.owner) + 1, np.int64)
    room = np.zeros(len(links.rate))
    growing = np.zeros(len(links.rate), np.int64)
    fixed = np.zeros(slots, np.int64)
    now_s = 0.0
    coming = 0
    count = 0
    for rank in range(len(tasks.begin)):
        if tasks.empty[tasks.begin[rank]] == 0:
            ready[count] = tasks.begin[rank]
            count += 1
    while tasks.done[judge] < wanted:
        # What can begin does.
        while count > 0:
            count -= 1
            task = ready[count]
            again = True
            while again:
                again = machine.take(tasks, task)
                connection = tasks.connection[task]
                if connection < 0:
                    seconds = machine.duration_s(tasks, task, costs[3])
                    if seconds > 0.0 or again:
                        machine.push(heap, now_s + seconds, task)
                    else:
                        count = machine.ended(tasks, task, now_s, ready, count)
                elif links.hop_of[flows.path[connection]] == links.hop_of[flows.path[connection] + 1]:
                    machine.push(heap, now_s + costs[0] + (costs[1] + costs[2]) * tasks.size[task], task)
                elif flows.place[connection] < 0:
                    _begin(flows, links, connection, tasks.size[task], task, now_s, hops)
                else:
                    if free >= entries:
                        return OVERLOADED
                    entry = free
                    free = queue[next_of + entry]
                    queue[next_of + entries + entry] = task
                    queued[entry] = tasks.size[task]
                    queue[next_of + entry] = -1
                    if queue[2 * connection] < 0:
                        queue[2 * connection] = entry
                    else:
                        queue[next_of + queue[2 * connection + 1]] = entry
                    queue[2 * connection + 1] = entry
        if flows.numbers[1] > 0:
            _share(flows, links, now_s, hops, room, growing, fixed)
        # The next instant.
        then_s = heap.at_s[0] if heap.count[0] > 0 else _NEVER
        if coming < len(arrivals.at_s):
            then_s = min(then_s, arrivals.at_s[coming])
        for at in range(flows.numbers[0]):
            then_s = min(then_s, flows.ends_s[flows.active[at]])
        if then_s > until_s:
            return LATE
        now_s = max(now_s, then_s)
        soon_s = now_s + 1e-9
        at = 0
        while at < flows.numbers[0]:
            slot = flows.active[at]
            if flows.ends_s[slot] > soon_s:
                at += 1
                continue
            task = flows.task[slot]
            _end(flows, links, slot, hops)
            if task >= 0:
                cost_s = costs[0] + costs[1] * tasks.size[task] + links.delay_s[flows.path[slot]]
                machine.push(heap, now_s + cost_s, task)
            if slot >= connections:
                fresh[unused] = slot
                unused += 1
            elif queue[2 * slot] >= 0:
                entry = queue[2 * slot]
                queue[2 * slot] = queue[next_of + entry]
                queue[next_of + entry] = free
                free = entry
                _begin(flows, links, slot, queued[entry], queue[next_of + entries + entry], now_s, hops)
                # It stands at the end of the active ones: the loop comes to it, and finds that it has no end yet.
        while coming < len(arrivals.at_s) and arrivals.at_s[coming] <= soon_s:
            slot = arrivals.connection[coming]
            if slot < 0:
                if unused == 0:
                    return OVERLOADED
                unused -= 1
                slot = fresh[unused]
                flows.path[slot] = arrivals.path[coming]
            if flows.place[slot] < 0:
                _begin(flows, links, slot, arrivals.size[coming], -1, now_s, hops)
            elif flows.task[slot] < 0:  # of a paced stream: its bytes join those that it still has to send
                flows.left[slot] += arrivals.size[coming]
                path = flows.path[slot]
                for hop in range(links.hop_of[path], links.hop_of[path + 1]):
                    links.carried[links.hop[hop]] += arrivals.size[coming]
                if flows.rate[slot] > 0.0:
                    flows.ends_s[slot] += arrivals.size[coming] / flows.rate[slot]
            coming += 1
        while heap.count[0] > 0 and heap.at_s[0] <= soon_s:
            count = machine.ended(tasks, machine.pop(heap), now_s, ready, count)
    return 0


def run(
    tasks: Tasks,
    links: Links,
    arrivals: Arrivals,
    path_of: Ints,
    *,
    wanted: int,
    judge: int,
    until_s: float,
    costs: Floats,
) -> int:
    """Simulate until rank `judge` has done `wanted` iterations; return 0, OVERLOADED, or LATE if `until_s` came first.

    `path_of` is the path of each connection; `costs` as in `_run`.
    """
    connections = len(path_of)
    slots = connections + _MOST_FLOWS
    hops = max(1, int(np.diff(links.hop_of).max(initial=1)))
    entries = max(1024, 4 * len(tasks.owner))
    path = np.zeros(slots, np.int64)
    path[:connections] = path_of
    none = np.full(slots * hops, -1, np.int64)
    flows = _Flows(
        path=path,
        left=np.zeros(slots),
        rate=np.zeros(slots),
        since_s=np.zeros(slots),
        ends_s=np.full(slots, np.inf),
        task=np.full(slots, -1, np.int64),
        place=np.full(slots, -1, np.int64),
        active=np.zeros(slots, np.int64),
        after=none,
        before=none.copy(),
        head=np.full(len(links.rate), -1, np.int64),
        dirty=np.zeros(2 * len(links.rate), np.int64),
        numbers=np.zeros(2, np.int64),
    )
    most = 4 * len(tasks.owner) + 1024
    heap = Heap(np.zeros(most), np.zeros(most, np.int64), np.zeros(1, np.int64))
    queue = np.full(2 * connections + 2 * entries, -1, np.int64)
    waiting = np.zeros(entries)
    return int(_run(tasks, links, arrivals, flows, heap, queue, waiting, wanted, judge, until_s, costs, hops))
