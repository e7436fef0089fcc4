"""Tables of a ring of four hosts as a run would leave them, from passes, services and rates that a test chooses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.helpers import manifests
from tests.helpers.made_tables import table

HOSTS = ("h1", "h2", "h3", "h4")
BEGAN_NS = 1_795_000_000_000_000_000
MS = 1_000_000
LINK_BPS = 1e9  # 125 bytes a microsecond, 125,000 a millisecond


@dataclass
class Ring:
    """A ring in which each iteration is passes of so many milliseconds, then buckets that take so long together.

    `passes` are ranks by iterations, `services` buckets by iterations; bucket k is ready when (k + 1) / buckets of the
    backward pass, half of the passes, are done. Every rank ends with the last bucket, but for `late` (ranks by
    iterations), by which the last bucket reaches it later, and `after`, which it spends by itself then.
    `hops` are bytes a millisecond that each host sends while buckets are under way; `backlogs` bytes queued at it then.
    """

    passes: Any
    services: Any
    late: Any = None
    after: Any = None
    hops: Mapping[str, float] = field(default_factory=dict)
    backlogs: Mapping[str, float] = field(default_factory=dict)
    others: Mapping[str, float] = field(default_factory=dict)  # bytes a millisecond of a load named `iperf`
    again: Mapping[str, int] = field(default_factory=dict)  # of a million bytes that a host sends, those sent again
    rtts: Mapping[str, float] = field(default_factory=dict)  # least round trip of what a host sends, in seconds
    waits: Mapping[str, float] = field(default_factory=dict)  # share of the time with data that a window held it up
    offered: tuple[int, int] = (4_000, 4_000)  # windows that its receiver advertises, one after the other
    unread: Mapping[str, int] = field(default_factory=dict)  # bytes that a host leaves in its socket; else not sampled
    drops: Mapping[str, int] = field(default_factory=dict)  # packets that the queue of a host drops
    stuck: Mapping[str, float] = field(default_factory=dict)  # share of a host's sending, its end, that sends nothing
    disk: Mapping[int, float] = field(default_factory=dict)  # seconds of waiting for disks, by iteration in which
    queued_ms: float = np.inf  # since it began to send, for which a queue holds something
    burst_ms: int = 20  # of every 20 ms in which hosts send while buckets are under way
    waited: float = 0.0  # share of the window for which ranks waited for processors that others used
    samples: int = 200  # of what a receiver leaves unread
    crowded: Mapping[str, float] = field(default_factory=dict)  # by host: that for which ranks waited for any

    def __post_init__(self) -> None:
        ranks, iterations = np.shape(self.passes)
        buckets = len(self.services)
        none = np.zeros((ranks, iterations))
        late = none if self.late is None else np.asarray(self.late)
        after = none if self.after is None else np.asarray(self.after)
        self.rows: dict[str, list[dict[str, Any]]] = {"iterations": [], "spans": []}
        self.sending: list[tuple[float, float]] = []
        start, self.times = np.zeros(ranks), []
        for number in range(iterations):
            own = np.asarray(self.passes)[:, number]
            done, begun = -np.inf, np.inf
            ready = [start + own * (0.5 + 0.5 * (place + 1) / buckets) for place in range(buckets)]
            for place in range(buckets):
                begin = max(done, float(ready[place].max()))
                done = begin + float(self.services[place][number])
                begun = min(begun, begin)
                for rank in range(ranks):
                    last = late[rank, number] if place == buckets - 1 else 0.0
                    self._span(rank, number, place, ready[place][rank], done + last)
            self.sending.append((begun, done))
            end = np.maximum(start + own, done + late[:, number]) + after[:, number]
            for rank in range(ranks):
                self._iteration(rank, number, start[rank], end[rank], own[rank])
            self.times.append(float(end.max()))
            start = end.copy()
        self.end_ms = float(start.max())

    def _span(self, rank: int, number: int, place: int, begin: float, end: float) -> None:
        span = {"rank": rank, "iteration": number, "lane": "communication", "span": "all-reduce", "peer": -1}
        times = {"what": f"bucket {place}", "start_ns": _ns(begin), "end_ns": _ns(end), "bytes": 1000}
        self.rows["spans"].append({**span, **times})

    def _iteration(self, rank: int, number: int, start: float, end: float, own: float) -> None:
        times = {"start_ns": _ns(start), "end_ns": _ns(end), "seconds": (end - start) / 1e3}
        passes = {"forward_s": own / 2e3, "backward_s": own / 2e3, "wait_s": (end - start - own) / 1e3}
        self.rows["iterations"].append({"rank": rank, "iteration": number, **times, **passes})

    @property
    def window(self) -> Any:
        """The one window of the run."""
        iterations = len(self.services[0])
        names = ("count", "own_share", "others_share", "interrupt_share", "steal_share", "pressure_share")
        shares = {**dict.fromkeys((*names, "throttled_share", "wait_share"), 0.0), "others_wait_share": self.waited}
        return manifests.window(
            start_ns=_ns(0),
            end_ns=_ns(self.end_ms),
            iterations={"a": {"first": 0, "last": iterations - 1}},
            processors=[{"host": host, **shares, "wait_share": self.crowded.get(host, 0.0)} for host in HOSTS],
        )

    @property
    def manifest(self) -> Any:
        """The manifest of the run."""
        rails = [[{"device": "eth0", "address": f"10.0.0.{place + 1}"}] for place in range(len(HOSTS))]
        nodes = [{"name": host, "rails": rail} for host, rail in zip(HOSTS, rails, strict=True)]
        links = [
            {"host": host, "device": "eth0", "switch": "s", "switch_port": f"p-{host}", "rate": LINK_BPS}
            for host in HOSTS
        ]
        ranks = [{"rank": place, "node": host} for place, host in enumerate(HOSTS)]
        return manifests.made(
            topology={"kind": "local", "nodes": [*nodes, {"name": "s", "kind": "switch"}], "links": links},
            jobs=[{"name": "a", "workload": "ddp", "ranks": ranks}],
        )

    def table(self, name: str) -> Any:
        """A table of the run."""
        if name in self.rows:
            return table(name, self.rows[name])
        if name == "capture_flows":
            return table(name, list(self._flows()))
        if name == "flow_packets":
            return table(name, list(self._bins()))
        if name == "sockets":
            return table(name, list(self._samples()))
        return table(name, [])

    def counter_rows(self, pattern: str) -> Any:
        """The samples of queues, or of waiting for disks."""
        if "io" in pattern:
            return table("counters", list(self._waiting_for_disks()))
        rows = [
            {"node": host, "port": "eth0", "counter": "qdisc.tbf.backlog_bytes", "time_ns": _ns(at), "value": value}
            for host, queued in {**dict.fromkeys(HOSTS, 0.0), **self.backlogs}.items()
            for begin, end in self.sending
            for at, value in ((begin, queued), (min(end, begin + self.queued_ms), 0.0))
        ]
        rows += [
            {"node": host, "port": "eth0", "counter": "qdisc.tbf.drops", "time_ns": _ns(at), "value": value}
            for host, dropped in self.drops.items()
            for at, value in ((0.0, 0.0), (self.end_ms, float(dropped)))
        ]
        return table("counters", rows)

    def _waiting_for_disks(self) -> Any:
        for host in HOSTS if self.disk else ():
            waited = 0.0
            for number, at in enumerate([0.0, *self.times]):
                yield {"node": host, "port": "", "counter": "io.waited_s", "time_ns": _ns(at), "value": waited}
                waited += self.disk.get(number, 0.0)

    def _flows(self) -> Any:
        for place, host in enumerate(HOSTS):
            to = HOSTS[place - 1]
            for name, kind in (("a", "training"), ("iperf", "cross")):
                ends = {"src": f"10.0.0.{place + 1}", "dst": f"10.0.0.{HOSTS.index(to) + 1}", "protocol": "tcp"}
                yield {
                    "node": host,
                    "launch": f"tcpdump.{host}",
                    "port": "eth0",
                    "direction": "out",
                    "kind": kind,
                    "name": name,
                    **ends,
                    "src_port": 1,
                    "dst_port": 2,
                    "payload_bytes": 1_000_000,
                    "repeated_bytes": self.again.get(host, 0) if name == "a" else 0,
                }

    def _samples(self) -> Any:
        for place, host in enumerate(HOSTS):
            ends = {"src": f"10.0.0.{place + 1}", "dst": f"10.0.0.{place or len(HOSTS)}", "src_port": 1, "dst_port": 2}
            if host in self.stuck:
                yield from self._stuck(ends, self.stuck[host])
            for share, window in () if host in self.stuck else zip((0.25, 0.75), self.offered, strict=True):
                held = {"busy_s": share, "rwnd_limited_s": share * self.waits.get(host, 0.0)}
                rtt = {"min_rtt_s": self.rtts.get(host, 1e-5), "rtt_s": 1e-3, "cwnd_segments": 10}
                yield {
                    **ends,
                    **held,
                    **rtt,
                    "unacked_segments": 5,
                    "snd_wnd_bytes": window,
                    "time_ns": _ns(share * self.end_ms),
                }
            if (left := self.unread.get(HOSTS[place - 1])) is not None:
                back = {"src": ends["dst"], "dst": ends["src"], "src_port": 2, "dst_port": 1}
                for at in np.linspace(0, self.end_ms, self.samples):
                    yield {**back, "unacked_segments": 0, "unread_bytes": left, "time_ns": _ns(at)}

    def _stuck(self, ends: Mapping[str, Any], share: float) -> Any:
        """Samples every 50 ms of a sender that has payload at the end of each span, and nothing under way."""
        for at in np.arange(0, self.end_ms, 50):
            spans = [(end - share * (end - begin), end) for begin, end in self.sending]
            unsent = 9_000 if any(begin <= at < end for begin, end in spans) else 0
            sent = sum(begin <= at for begin, _ in spans)
            state = {"unacked_segments": 0 if unsent else 5, "notsent_bytes": unsent, "bytes_sent": sent * 9_000}
            yield {
                **ends,
                **state,
                "snd_wnd_bytes": self.offered[0],
                "mss_bytes": 1448,
                "rtt_s": 1e-3,
                "time_ns": _ns(at),
            }

    def _bins(self) -> Any:
        for host in HOSTS:
            for flow, rates in enumerate((self.hops, self.others)):
                for begin, end in self.sending if rates.get(host) else ():
                    for at in range(int(begin), int(np.ceil(end))):
                        if (at - int(begin)) % 20 >= self.burst_ms:
                            continue
                        size = {"wire_bytes": rates[host], "payload_bytes": rates[host]}
                        when = {"bin_ns": _ns(at), "width_ns": MS, "flow": flow, "port": "eth0", "packets": 1}
                        yield {"node": host, "launch": f"tcpdump.{host}", **when, **size}


def _ns(milliseconds: float) -> int:
    return BEGAN_NS + round(milliseconds * MS)


def alike(values: Sequence[float], iterations: int) -> Any:
    """Values that are the same in every iteration."""
    return np.repeat(np.asarray(values, float)[:, None], iterations, axis=1)
