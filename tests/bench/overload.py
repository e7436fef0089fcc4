"""What the flow generator sends when more is requested than it can send, in turns with iperf3 on four streams."""

from __future__ import annotations

from collections.abc import Iterator

from tests.bench import flow_generator, local
from tests.bench.figure import Figure, Settings
from tests.bench.flow_generator import Sent

REQUESTED_BPS = (100e9, 200e9, 300e9, 600e9)
SECONDS = 1.5
IPERF_S = 2.0


def measure(settings: Settings) -> Iterator[Figure]:
    """What arrives while a schedule lasts, by the load that it requests; loads in turns, there and back."""
    sent: dict[float, list[Sent]] = {load: [] for load in REQUESTED_BPS}
    peers: list[tuple[float, float]] = []
    with local.machine_to_ourselves(), flow_generator.pair(settings.scratch) as between:
        for turn in range(settings.times(5, 2)):
            for load in REQUESTED_BPS if turn % 2 == 0 else REQUESTED_BPS[::-1]:
                schedule = flow_generator.websearch(load, SECONDS)
                sent[load].append(flow_generator.send(between, schedule, workers=2, sinks=2, drain_s=30))
            peers.append(flow_generator.iperf(between, IPERF_S))
    least = tuple(one.received_bps / 1e9 for one in sent[REQUESTED_BPS[0]])
    for load, each in sent.items():
        shed = [sum(one.log.errors.values()) / one.log.flows for one in each]
        errors = ", ".join(dict.fromkeys(what for one in each for what in one.log.errors))
        yield Figure(
            what=f"received while {load / 1e9:g} Gbit/s are requested",
            unit="Gbit/s",
            values=tuple(one.received_bps / 1e9 for one in each),
            against=f"{REQUESTED_BPS[0] / 1e9:g} requested",
            reference=least,
            note=f"{min(shed):.0%} to {max(shed):.0%} of flows {errors or 'shed'}",
        )
    yield Figure(
        what="saturation, web search, a new connection a flow",
        unit="Gbit/s",
        values=least,
        against="iperf3 -P 4",
        reference=tuple(rate / 1e9 for rate, _ in peers),
    )
    costs = tuple(one.cpu_s / (one.received_bytes / 1e9) for one in sent[REQUESTED_BPS[0]])
    yield Figure(
        what="processor time of it, both ends",
        unit="s/GB",
        values=costs,
        against="iperf3 -P 4",
        reference=tuple(cost for _, cost in peers),
    )
