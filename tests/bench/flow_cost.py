"""What a gigabyte of the flow generator costs in processor time, in turns with iperf3 at the same rate."""

from __future__ import annotations

from collections.abc import Iterator

from tests.bench import flow_generator, flow_times, local
from tests.bench.figure import Figure, Settings

LOADS_BPS = (10e9, 20e9)
GOAL = 0.8  # of iperf3's
CONNECTIONS_A_S = 20_000.0


def measure(settings: Settings) -> Iterator[Figure]:
    """Web search over kept connections and `iperf3 -P 4` at the rate that arrived; new connections, blocking or not."""
    seconds = settings.times(5, 2)
    with local.machine_to_ourselves(), flow_generator.pair(settings.scratch) as between:
        for load in LOADS_BPS:
            ours, theirs = [], []
            for _ in range(settings.times(5, 2)):
                sent = flow_generator.send(between, flow_generator.websearch(load, seconds), pool=True)
                ours.append(sent.cpu_s / (sent.received_bytes / 1e9))
                theirs.append(flow_generator.iperf(between, seconds, limit_bps=sent.received_bps)[1])
            what = f"processor time at {load / 1e9:g} Gbit/s, both ends"
            yield Figure(what=what, unit="s/GB", values=tuple(ours), against="iperf3 -P 4", reference=tuple(theirs))
            ratios = tuple(one / other for one, other in zip(ours, theirs, strict=True))
            yield Figure(what="  turn by turn", unit="of iperf3's", values=ratios, against="goal", reference=(GOAL,))
        yield _connecting(settings, between)


def _connecting(settings: Settings, between: flow_generator.Pair) -> Figure:
    streams = flow_generator.small(CONNECTIONS_A_S, settings.times(2, 1))
    ours, alone = [], []
    for _ in range(settings.times(5, 2)):
        for costs, way in ((ours, flow_times.generated), (alone, flow_times.sent_alone)):
            done = way(between, streams, pool=False)
            costs.append(done.cpu_s / len(done.sizes) * 1e6)
    return Figure(
        what=f"processor time of a flow of 100 B with a new connection, {CONNECTIONS_A_S:,.0f}/s",
        unit="us",
        values=tuple(ours),
        against="blocking, one at a time",
        reference=tuple(alone),
    )
