"""Draw endless schedules of flows in constant memory: the start and the size of each flow.

A schedule is drawn in blocks of about two seconds. The sizes of a block are drawn again until its bytes on the wire
are within `BLOCK_SHARE` of what is asked for, what is left over going to the next block: among all draws of the random
process those are kept that carry the load, since the tail of such distributions is so heavy that a draw of a minute
may miss its mean by several per cent. So the load hardly varies from one block to the next, where a compound Poisson
process would; "compound-poisson" draws such a one, and takes its load as it comes. Python's standard library only; the
same seed gives the same schedule.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import math
import random
from typing import Callable, Iterator, Literal, Sequence, Tuple, TypedDict

# ruff: noqa: FURB136, S311
# Traffic is drawn here, not keys; zip(strict) and pairwise are newer than Python 3.8; max() takes three times as long.

HEADER_BYTES = 16  # identity and length, at the head of every flow and part of it
ETHERNET_BYTES = 14  # of a frame's header, without FCS
SEGMENT_HEADER_BYTES = {4: 66, 6: 86}  # by version of IP: Ethernet 14, IP 20 or 40, TCP 20 and 12 of timestamps
# Towards the sink: SYN, which has 8 bytes more of options, its ACK, the ACK of the acknowledgement, RST.
FLOW_WIRE_BYTES = {version: 4 * header + 8 for version, header in SEGMENT_HEADER_BYTES.items()}

BLOCK_S = 2.0
BLOCK_SHARE = 0.004
BLOCK_DEVIATION = 0.3  # largest relative standard deviation of a block's bytes before any is drawn again
MOST_IN_BLOCK = 25_000
MOST_DRAWS = 2000

BURST_FLOWS = 2  # Salamy, appendix A.1
MOST_OF_BURST = 0.9  # that one of its flows may carry
FEWEST_BETWEEN = 8  # flows of the consistent element, likewise
BURST_SPLIT_DEVIATION = 0.1  # of the normal distribution around one half by which the two flows share the burst


Arrivals = Literal["poisson", "poisson-gaps", "compound-poisson"]
Event = Tuple[int, int, int]  # nanoseconds since the start, bytes, number of the sink


class BurstSpec(TypedDict):
    """A burst: every `period_s` the load is `height` times its mean for `width_s`."""

    width_s: float
    period_s: float
    height: float


class _StreamSpec(TypedDict):
    points: list[list[float]]
    factor: float
    load_bps: float
    mtu: int
    flow_bytes: int
    arrivals: Arrivals
    burst: BurstSpec | None
    seed: int | str
    duration_s: float | None
    sink: int


class StreamSpec(_StreamSpec, total=False):
    """The specification of a random schedule: points (bytes, cumulative probability), layer-2 bit/s, and its sink.

    Without `ip` it is of IPv4. `dilation` multiplies the times of the process (its blocks, the unit of regular gaps);
    load and burst are as they are on the wire.
    """

    ip: Literal[4, 6]
    dilation: int


def payload_bytes(size: int) -> int:
    """Return the payload of a flow of `size`: each begins with a header, so it is no smaller than that."""
    return max(size, HEADER_BYTES)


class Framing:
    """The framing of flows on the wire: MTU, version of IP, and what a flow adds beside its segments.

    `flow_bytes` are those of opening and closing a connection when they are not given.
    """

    def __init__(self, mtu: int, ip: int = 4, flow_bytes: int | None = None) -> None:
        self.mtu = mtu
        self.header = SEGMENT_HEADER_BYTES[ip]
        self.flow_bytes = FLOW_WIRE_BYTES[ip] if flow_bytes is None else flow_bytes
        self.segment = mtu + ETHERNET_BYTES - self.header  # payload of a full one

    def wire_bytes(self, size: int) -> int:
        """Return the layer-2 bytes towards the sink of one flow: payload, segments' headers, opening and closing."""
        payload = payload_bytes(size)
        return payload + self.header * -(-payload // self.segment) + self.flow_bytes

    def size_on_wire(self, wire: float) -> int:
        """Return the size of the flow that makes so many bytes on the wire, at least the smallest."""
        rest = max(1.0, wire - self.flow_bytes)
        segments = math.ceil(rest / (self.segment + self.header))
        return payload_bytes(round(rest - self.header * segments))


def framing(spec: StreamSpec) -> Framing:
    """Return the framing of a spec; a spec without a version of IP is of IPv4."""
    return Framing(spec["mtu"], spec.get("ip", 4), spec["flow_bytes"])


class Sizes:
    """A piecewise-linear distribution of flow sizes: points (bytes, cumulative probability), all times `factor`.

    What probability the first point has lies on it; two points of one size make a step.
    """

    def __init__(self, points: Sequence[Sequence[float]], factor: float = 1.0) -> None:
        self.bytes = [point[0] * factor for point in points]
        self.cdf = [point[1] for point in points]
        self._slopes = [0.0]
        for low, high, below, above in zip(self.bytes, self.bytes[1:], self.cdf, self.cdf[1:]):
            slope = (high - low) / (above - below) if above > below else 0.0
            self._slopes.append(slope if math.isfinite(slope) else 0.0)

    def at(self, share: float) -> int:
        """Return the size below which `share` (0 to 1, less than 1) of all flows lie, in whole bytes, at least 1."""
        place = bisect.bisect_right(self.cdf, share)
        if place == 0:
            return max(1, int(self.bytes[0] + 0.5))
        if place == len(self.cdf):
            return max(1, int(self.bytes[-1] + 0.5))
        value = self.bytes[place - 1] + (share - self.cdf[place - 1]) * self._slopes[place]
        return int(value + 0.5) or 1

    def _pieces(self) -> Iterator[tuple[float, float, float]]:
        """Yield start, end and probability of each piece."""
        yield self.bytes[0], self.bytes[0], self.cdf[0]
        for low, high, below, above in zip(self.bytes, self.bytes[1:], self.cdf, self.cdf[1:]):
            yield low, high, above - below

    def mean(self) -> float:
        """Return the mean size in bytes, by the same interpolation that draws sizes."""
        return math.fsum(share * (low + high) / 2 for low, high, share in self._pieces())

    def variance(self) -> float:
        """Return the variance of sizes in square bytes, by the same interpolation."""
        squares = math.fsum(s * (low * low + low * high + high * high) / 3 for low, high, s in self._pieces())
        return max(0.0, squares - self.mean() ** 2)

    def mean_wire(self, framing: Framing) -> float:
        """Return the mean layer-2 bytes towards the sink of a flow."""
        payload = math.fsum(share * _mean_at_least(low, high, HEADER_BYTES) for low, high, share in self._pieces())
        segments = math.fsum(share * _mean_segments(low, high, framing.segment) for low, high, share in self._pieces())
        return payload + framing.header * segments + framing.flow_bytes


def _mean_at_least(low: float, high: float, least: float) -> float:
    """Return the mean of max(x, least) for x uniform between low and high."""
    if high <= least:
        return least
    if low >= least:
        return (low + high) / 2
    return (least * (least - low) + (high * high - least * least) / 2) / (high - low)


def _mean_segments(low: float, high: float, segment: int) -> float:
    """Return the mean of ceil(x / segment), at least 1, for x uniform between low and high."""
    if high - low < 1e-9 * segment:
        return max(1.0, math.ceil(high / segment))

    def area(x: float) -> float:
        whole = math.floor(x / segment)
        return segment * whole * (whole + 1) / 2 + (x - whole * segment) * (whole + 1)

    return (area(high) - area(low)) / (high - low)


def poisson(random_: random.Random, mean: float) -> int:
    """Draw a Poisson number: by inversion when small, else by transformed rejection (Hoermann, 1993)."""
    if mean < 30:
        product, count, least = random_.random(), 0, math.exp(-mean)
        while product > least:
            product *= random_.random()
            count += 1
        return count
    root, log_mean = math.sqrt(mean), math.log(mean)
    b = 0.931 + 2.53 * root
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    v_r = 0.9277 - 3.6224 / (b - 2)
    while True:
        u, v = random_.random() - 0.5, random_.random()
        u_s = 0.5 - abs(u)
        k = math.floor((2 * a / u_s + b) * u + mean + 0.43)
        if u_s >= 0.07 and v <= v_r:
            return k
        if k < 0 or (u_s < 0.013 and v > u_s):
            continue
        if v <= 0 or math.log(v * inverse_alpha / (a / (u_s * u_s) + b)) <= k * log_mean - mean - math.lgamma(k + 1):
            return k


class Consistent:
    """Algorithm 1 of Salamy's thesis (appendix A.1): flows of the distribution at random instants.

    `arrivals` "poisson": exponential gaps. "poisson-gaps": gaps of a Poisson-distributed number of microseconds, as the
    algorithm reads literally, which makes them nearly regular. "compound-poisson": exponential gaps and every size by
    itself; the bytes of t seconds vary by the square root of (1 + variance / mean^2 of a flow) / (flows in t seconds).
    """

    def __init__(self, spec: StreamSpec, sizes: Sizes) -> None:
        self._framing = framing(spec)
        self.sizes = sizes
        self._regular = spec["arrivals"] == "poisson-gaps"
        self._steered = spec["arrivals"] != "compound-poisson"
        wire = sizes.mean_wire(self._framing)
        self.bytes_per_s = spec["load_bps"] / 8
        self.flows_per_s = self.bytes_per_s / wire
        spread = 1.0 + sizes.variance() / wire**2  # of a compound Poisson process, relative to one flow
        self._unit_s = 1e-6 * spec.get("dilation", 1)  # of regular gaps
        wanted = max(BLOCK_S * spec.get("dilation", 1), spread / BLOCK_DEVIATION**2 / self.flows_per_s)
        self.block_s = min(wanted, max(1.0, MOST_IN_BLOCK) / self.flows_per_s)
        self._next_s = 0.0  # of regular arrivals, since the start of the block

    def lengths(self, duration_s: float | None) -> Iterator[float]:
        """Return the length of each block in seconds, without end when there is no duration."""
        if duration_s is None:
            return itertools.repeat(self.block_s)
        count = max(1, round(duration_s / self.block_s))
        return itertools.repeat(duration_s / count, count)

    def block(self, random_: random.Random, length_s: float, wanted: float) -> tuple[list[tuple[float, int]], float]:
        """Draw the flows of one block, seconds since its start and bytes, in order; and their bytes on the wire."""
        fixed = self._regular_times(random_, length_s) if self._regular else None

        def draw() -> list[int]:
            count = len(fixed) if fixed is not None else poisson(random_, self.flows_per_s * length_s)
            return [self.sizes.at(random_.random()) for _ in range(count)]

        sizes, wire = closest(draw, wanted, self._framing, most=MOST_DRAWS if self._steered else 1)
        times = fixed if fixed is not None else sorted(random_.random() * length_s for _ in sizes)
        return list(zip(times, sizes)), wire

    def _regular_times(self, random_: random.Random, length_s: float) -> list[float]:
        times, at = [], self._next_s
        while at < length_s:
            times.append(at)
            at += poisson(random_, 1 / self.flows_per_s / self._unit_s) * self._unit_s
        self._next_s = at - length_s
        return times


class Burst:
    """Algorithm 2 of Salamy's thesis (appendix A.1): every period a burst, and consistent traffic for the rest of it.

    The burst is of two flows that carry height x width / period of the period's bytes on the wire; they share it by a
    normal distribution around a half, and start at exponentially distributed instants (mean width / 2) within the
    width. The rest is at least eight flows, or as many as the mean size makes, of the distribution scaled down so that
    they carry the rest of the bytes.
    """

    def __init__(self, spec: StreamSpec, burst: BurstSpec, sizes: Sizes) -> None:
        self._framing = framing(spec)
        self._regular = spec["arrivals"] == "poisson-gaps"
        self._width_s, self._period_s = burst["width_s"], burst["period_s"]
        self.bytes_per_s = spec["load_bps"] / 8
        period_bytes = self.bytes_per_s * self._period_s
        self._burst_bytes = period_bytes * min(1.0, burst["height"] * self._width_s / self._period_s)
        rest = period_bytes - self._burst_bytes
        smallest = self._framing.wire_bytes(0)
        if self._burst_bytes < BURST_FLOWS * smallest or 0 < rest < FEWEST_BETWEEN * smallest:
            least = max(
                BURST_FLOWS * smallest * period_bytes / max(self._burst_bytes, 1e-9),
                FEWEST_BETWEEN * smallest * period_bytes / rest if rest > 0 else 0.0,
            )
            raise ValueError(
                "%.6g bit/s are too little for %d flows in a burst and %d between two: a period of %.6g s needs %.6g "
                "bit/s" % (spec["load_bps"], BURST_FLOWS, FEWEST_BETWEEN, self._period_s, least / self._period_s * 8)
            )
        self.between = 0
        self.between_factor = 1.0
        self._sizes = sizes
        if rest > 0:
            mean = sizes.mean_wire(self._framing)
            self.between = max(FEWEST_BETWEEN, math.ceil(rest / mean))
            self.between_factor = self._factor(sizes, rest / self.between)
            self._sizes = Sizes(list(zip(sizes.bytes, sizes.cdf)), self.between_factor)
        self.flows_per_s = (BURST_FLOWS + self.between) / self._period_s
        dilation = spec.get("dilation", 1)
        self._unit_s = 1e-6 * dilation  # of regular gaps
        self.block_s = max(1, round(BLOCK_S * dilation / self._period_s)) * self._period_s

    def largest_bytes(self) -> int:
        """Return the size of the largest flow possible, in a burst or between bursts."""
        largest = self._framing.size_on_wire(MOST_OF_BURST * self._burst_bytes)
        return max(largest, int(self._sizes.bytes[-1])) if self.between else largest

    def _factor(self, sizes: Sizes, wanted: float) -> float:
        """Return the factor of sizes so that a flow makes `wanted` bytes on the wire on average."""
        points = list(zip(sizes.bytes, sizes.cdf))
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            below = Sizes(points, middle).mean_wire(self._framing) < wanted
            low, high = (middle, high) if below else (low, middle)
        return high

    def lengths(self, duration_s: float | None) -> Iterator[float]:
        """Yield the length of each block in seconds, whole periods; what a duration has beyond those stays empty."""
        periods = round(self.block_s / self._period_s)
        if duration_s is None:
            while True:
                yield periods * self._period_s
        total = max(1, int(duration_s / self._period_s + 1e-6))
        count = max(1, round(total / periods))
        for number in range(count):
            yield (total * (number + 1) // count - total * number // count) * self._period_s

    def block(self, random_: random.Random, length_s: float, wanted: float) -> tuple[list[tuple[float, int]], float]:
        """Draw the flows of one block, which is whole periods long, and their bytes on the wire."""
        periods = max(1, round(length_s / self._period_s))
        flows: list[tuple[float, int]] = []
        for period in range(periods):
            flows += self._one_burst(random_, period * self._period_s)
        wire = float(sum(self._framing.wire_bytes(size) for _, size in flows))
        if self.between:
            count = self.between * periods
            sizes, more = closest(
                lambda: [self._sizes.at(random_.random()) for _ in range(count)], wanted - wire, self._framing
            )
            wire += more
            for period in range(periods):
                part = sizes[period * self.between : (period + 1) * self.between]
                flows += zip(self._between_times(random_, period * self._period_s), part)
        return sorted(flows), wire

    def _one_burst(self, random_: random.Random, at_s: float) -> list[tuple[float, int]]:
        share = -1.0
        while not 1 - MOST_OF_BURST <= share <= MOST_OF_BURST:
            share = random_.gauss(0.5, BURST_SPLIT_DEVIATION)
        mean_s = self._width_s / 2
        inside = -math.expm1(-self._width_s / mean_s)
        times = [at_s - mean_s * math.log1p(-random_.random() * inside) for _ in range(BURST_FLOWS)]
        parts = (share * self._burst_bytes, (1 - share) * self._burst_bytes)
        return [(time, self._framing.size_on_wire(part)) for time, part in zip(times, parts)]

    def _between_times(self, random_: random.Random, at_s: float) -> list[float]:
        begin, rest = at_s + self._width_s, self._period_s - self._width_s
        if not self._regular:
            return sorted(begin + random_.random() * rest for _ in range(self.between))
        times = []
        for _ in range(self.between):
            times.append(min(begin, at_s + self._period_s))
            begin += poisson(random_, rest / self.between / self._unit_s) * self._unit_s
        return times


def closest(
    draw: Callable[[], list[int]], wanted: float, framing: Framing, most: int = MOST_DRAWS
) -> tuple[list[int], float]:
    """Return the first draw of sizes within BLOCK_SHARE of the wanted bytes on the wire, else the closest of `most`."""
    segment, best, best_wire = framing.segment, [], math.inf
    for _ in range(most):
        sizes = draw()
        wire = float(
            sum(size if size >= HEADER_BYTES else HEADER_BYTES for size in sizes)
            + framing.header * sum((size + segment - 1) // segment for size in sizes)
            + framing.flow_bytes * len(sizes)
        )
        if abs(wire - wanted) < abs(best_wire - wanted):
            best, best_wire = sizes, wire
        if abs(wire - wanted) <= BLOCK_SHARE * wanted:
            break
    return best, best_wire


def process(spec: StreamSpec) -> Consistent | Burst:
    """Return the random process of a spec; ValueError, with a sentence for people, when it is impossible.

    `points`: of the distribution. `factor`: times its sizes. `load_bps`: layer-2 bit/s towards the sink. `mtu`, `ip`.
    `flow_bytes`: what a flow adds on the wire beside its segments. `arrivals`: "poisson", "poisson-gaps" or
    "compound-poisson". `burst`: None, or width_s, period_s and height. `seed`. `duration_s`: None for no end. `sink`:
    number of the sink.
    """
    sizes = Sizes(spec["points"], spec["factor"])
    return Burst(spec, spec["burst"], sizes) if spec["burst"] else Consistent(spec, sizes)


def largest_bytes(spec: StreamSpec) -> int:
    """Return the size of the largest flow that the random process of a spec can draw."""
    model = process(spec)
    if isinstance(model, Consistent):
        return int(model.sizes.bytes[-1])
    return model.largest_bytes()


def drawn(spec: StreamSpec) -> Iterator[Event]:
    """Yield the flows of a spec in order."""
    model = process(spec)
    random_ = random.Random(spec["seed"])
    begin_s, owed = 0.0, 0.0
    for length_s in model.lengths(spec["duration_s"]):
        wanted = model.bytes_per_s * length_s
        flows, wire = model.block(random_, length_s, max(wanted + owed, wanted / 2))
        owed += wanted - wire
        for at_s, size in flows:
            yield round((begin_s + at_s) * 1e9), size, spec["sink"]
        begin_s += length_s


def recorded(path: str, factor: float, length_s: float | None) -> Iterator[Event]:
    """Yield the flows of a file of lines "nanoseconds,bytes,sink" in order.

    They are repeated every `length_s` seconds, unless that is None.
    """

    def lines() -> Iterator[str]:
        with open(path, encoding="ascii") as file:  # noqa: PTH123 - pathlib would take as long as starting Python
            yield from file

    return repeated(lines, factor, length_s)


def repeated(lines: Callable[[], Iterator[str]], factor: float, length_s: float | None) -> Iterator[Event]:
    """Yield the flows of such lines, which are taken anew for each repetition."""
    begin_ns = 0
    while True:
        for line in lines():
            at_ns, size, sink = line.split(",")
            yield begin_ns + int(at_ns), int(int(size) * factor + 0.5) or 1, int(sink)
        if length_s is None:
            return
        begin_ns += round(length_s * 1e9)


def merged(streams: Sequence[Iterator[Event]]) -> Iterator[Event]:
    """Merge several streams into one, in order."""
    return iter(streams[0]) if len(streams) == 1 else heapq.merge(*streams)
