"""Read device counters over a window: bytes of hosts' ports, congestion of rails, and ports of switches."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from orchestrator.analysis.traffic import throughput, trust
from orchestrator.parts.topology import Topology
from orchestrator.validity.window import MeteredBytes, PortBytes, RailCongestion, SwitchPort

BYTES = {"in": "rx_bytes", "out": "tx_bytes"}
PACKETS = {"in": "rx_packets", "out": "tx_packets"}
# Written with every sample, while a counter that stands still is kept at its turning points alone.
CLOCK = "sampler.nic.late_s"
PORT_COUNTERS = (*BYTES.values(), *PACKETS.values(), CLOCK)
AROUND_S = 1.0  # of the window, in which a quiet sample is looked for

# Congestion and losses under one name whatever the driver. Names of counters are those of Linux:
# drivers/infiniband/hw/{mlx5/counters.c, bnxt_re/hw_counters.c} and drivers/net/ethernet/mellanox/mlx5/core/en_stats.c,
# broadcom/bnxt/bnxt_ethtool.c, pensando/ionic/ionic_stats.c. Those of RDMA on ionic come from its firmware
# (ionic_hw_stats.c asks it), as AMD's `amd-smi` and node-scraper know them.
PRIORITIES = range(8)  # of IEEE 802.1Qbb
QUEUE_WRAPS_AT = 1 << 32  # mlx5's counters of queues have 32 bits

# A figure, and for mlx5, bnxt_re and ionic the counters of which the sum is it; the first that are all there count.
RAIL_FIGURES: Mapping[str, tuple[tuple[str, ...], ...]] = MappingProxyType(
    {
        "cnp_sent": (("rdma.np_cnp_sent",), ("rdma.tx_cnp_pkts",), ("rdma.tx_rdma_cnp_pkts",)),
        "cnp_handled": (("rdma.rp_cnp_handled",), ("rdma.rx_cnp_pkts",), ("rdma.rx_rdma_cnp_pkts",)),
        "ecn_marked": (("rdma.np_ecn_marked_roce_packets",), ("rdma.rx_ecn_marked_pkts",), ("rdma.rx_rdma_ecn_pkts",)),
        "out_of_sequence": (("rdma.out_of_sequence",), ("rdma.oos_drop_count",), ("rdma.resp_rx_outouf_seq",)),
        "retransmits": (
            ("rdma.packet_seq_err", "rdma.implied_nak_seq_err"),
            ("rdma.seq_err_naks_rcvd", "rdma.missing_resp"),
            ("rdma.req_rx_pkt_seq_err", "rdma.req_rx_impl_nak_seq_err"),
        ),
        "timeouts": (("rdma.local_ack_timeout_err",), ("rdma.to_retransmits",), ("rdma.tx_rdma_ack_timeout",)),
        "discards": (("ethtool.rx_discards_phy",), ("rdma.rx_roce_discards",), ("ethtool.frames_rx_dropped",)),
        "pfc_rx": (
            tuple(f"ethtool.rx_prio{number}_pause" for number in PRIORITIES),
            ("ethtool.rx_pfc_frames",),
            ("ethtool.frames_rx_pripause",),
        ),
        "pfc_tx": (
            tuple(f"ethtool.tx_prio{number}_pause" for number in PRIORITIES),
            ("ethtool.tx_pfc_frames",),
            ("ethtool.frames_tx_pripause",),
        ),
        **{
            f"pfc_{way}_{number}": (
                (f"ethtool.{way}_prio{number}_pause",),
                (f"ethtool.{way}_pfc_ena_frames_pri{number}",),
            )
            for way in ("rx", "tx")
            for number in PRIORITIES
        },
    }
)
# mlx5 has counters of those priorities alone for which PFC is on: what is there is the sum.
_PARTIAL = frozenset({"pfc_rx", "pfc_tx"})
RAIL_COUNTERS = tuple(dict.fromkeys(name for ways in RAIL_FIGURES.values() for names in ways for name in names))

_UP_TIME = "snmp.sysUpTime"
_SNMP_WRAPS_AT = 1 << 32  # a Counter32 of SMIv2 (RFC 2578); those of octets have 64 bits

# A figure, the counter of IF-MIB that it is, and whether that rolls over.
SWITCH_FIGURES = MappingProxyType(
    {
        "in_bytes": ("snmp.ifHCInOctets", False),
        "out_bytes": ("snmp.ifHCOutOctets", False),
        "in_discards": ("snmp.ifInDiscards", True),
        "out_discards": ("snmp.ifOutDiscards", True),
        "in_errors": ("snmp.ifInErrors", True),
        "out_errors": ("snmp.ifOutErrors", True),
    }
)
SWITCH_COUNTERS = (_UP_TIME, *(counter for counter, _ in SWITCH_FIGURES.values()))


def port_bytes(
    packets: throughput.CachedTable,
    counters: throughput.CachedTable,
    planned: Iterable[trust.Planned],
    span_ns: tuple[int, int],
    *,
    first_ns: int = 0,
    counting: Collection[str] = (),
) -> tuple[PortBytes, ...]:
    """Return both directions of every port that was to be captured; `packets` and `counters` are the run's tables.

    A counter is known at the instants of its samples, and a capture in bins. So both are taken between two samples
    around the window, at instants when as little as possible was on its way: nothing has to be guessed then of a
    training that is silent between its bursts, and of one that is not the two bins at the ends are little of the whole.
    `counting` are the nodes whose devices' counters were to be sampled; `first_ns` is when the run's first seconds end.
    """
    found = (
        _port_bytes(packets, counters, one, direction, span_ns, first_ns=first_ns)
        for one in planned
        for direction in BYTES
    )
    return tuple(replace(one, counting=one.node in counting) for one in found)


def _port_bytes(
    packets: throughput.CachedTable,
    counters: throughput.CachedTable,
    one: trust.Planned,
    direction: str,
    window_ns: tuple[int, int],
    *,
    first_ns: int,
) -> PortBytes:
    at, _ = throughput.samples(counters, node=one.node, port="", counter=CLOCK)
    wire = throughput.bins(packets, {"node": one.node, "port": one.port, "direction": direction})
    begin, end = window_ns
    around = int(AROUND_S * 1e9)
    before, after = at[(at >= begin - around) & (at <= begin)], at[(at >= end) & (at <= end + around)]
    span = (_quietest(wire, before[::-1], begin), _quietest(wire, after, end))
    earlier = None
    if len(wire.start_ns) and (early := at[(at >= wire.start_ns[0] - around) & (at <= first_ns)]).size > 1:
        start = _quietest(wire, early[early <= early[0] + around], int(early[0]))
        until = _quietest(wire, early[early >= early[-1] - around][::-1], int(early[-1]))
        earlier = _between(packets, counters, one, direction, (start, until)) if until > start else None
    return replace(_between(packets, counters, one, direction, span), earlier=earlier)


def _between(
    packets: throughput.CachedTable,
    counters: throughput.CachedTable,
    one: trust.Planned,
    direction: str,
    span: tuple[int, int],
) -> PortBytes:
    """Return what a port's capture and counters say from one instant to another."""
    node, port = one.node, one.port

    def captured(column: str) -> throughput.Bins:
        return throughput.bins(packets, {"node": node, "port": port, "direction": direction}, column=column)

    def counted(counter: str) -> float:
        return throughput.counter_growth(counters, node=node, port=port, counter=counter, span_ns=span)

    def edges(bins: throughput.Bins) -> float:
        return sum(float(_at(bins, np.array([instant]))[0]) for instant in span)

    return PortBytes(
        node=node,
        port=port,
        direction=direction,
        counted=counted(BYTES[direction]),
        edges=edges(captured("wire_bytes")),
        packet_edges=edges(captured("frames")),
        captured=captured("captured_bytes").within(*span) if one.state == "complete" else math.nan,
        packets=captured("packets").within(*span),
        frames=captured("frames").within(*span),
        wire=captured("wire_bytes").within(*span),
        counted_packets=counted(PACKETS[direction]),
        metered=one.metered,
    )


def metered(
    meters: throughput.CachedTable,
    packets: throughput.CachedTable,
    planned: Iterable[trust.Planned],
    span_ns: tuple[int, int],
) -> tuple[MeteredBytes, ...]:
    """Return both directions of every captured port that was metered, too; `meters` and `packets` are tables."""
    found = []
    for one in planned:
        for direction in BYTES:
            where = {"node": one.node, "port": one.port, "direction": direction}
            counted, captured = throughput.bins(meters, where), throughput.bins(packets, where)
            if len(counted.start_ns):
                found.append(
                    MeteredBytes(
                        **where,
                        metered=counted.within(*span_ns),
                        captured=captured.within(*span_ns) if one.state == "complete" else math.nan,
                        edges=sum(float(_at(captured, np.array([instant]))[0]) for instant in span_ns),
                    )
                )
    return tuple(found)


def _quietest(bins: throughput.Bins, instants: throughput.Ints, otherwise: int) -> int:
    """Return the instant around which the fewest bytes passed, the nearest of equals; `otherwise` without any."""
    return int(instants[np.argmin(_at(bins, instants))]) if len(instants) else otherwise


def _at(bins: throughput.Bins, instants: throughput.Ints) -> throughput.Floats:
    """Return the bytes of the bins around each instant, which may lie on either side of a sample read at their edge."""
    total = np.zeros(len(instants))
    if not len(bins.start_ns):
        return total
    for away in (-1, 0, 1):
        wanted = instants // bins.width_ns * bins.width_ns + away * bins.width_ns
        place = np.searchsorted(bins.start_ns, wanted).clip(max=len(bins.start_ns) - 1)
        total += np.where(bins.start_ns[place] == wanted, bins.amount[place], 0.0)
    return total


def congestion(
    counters: throughput.CachedTable, topology: Topology, span_ns: tuple[int, int]
) -> tuple[RailCongestion, ...]:
    """Return a row for each rail whose device counts any of it; `counters` is the run's table."""
    ends = [(host.name, rail, device) for host in topology.hosts for rail, device in enumerate(host.devices)]
    rows = []
    for host, rail, device in ends:
        grown = {name: _figure(counters, host, device, name, span_ns) for name in RAIL_FIGURES}
        rows.append(
            RailCongestion(
                host=host,
                rail=rail,
                device=device,
                figures={name: value for name, (value, _) in grown.items()},
                lost=frozenset(name for name, (_, lost) in grown.items() if lost),
            )
        )
    return tuple(row for row in rows if row.lost or not all(map(math.isnan, row.figures.values())))


def _figure(
    counters: throughput.CachedTable, host: str, device: str, figure: str, span_ns: tuple[int, int]
) -> tuple[float, bool]:
    """Return the growth of a counter, and whether it was sampled without that being known throughout."""
    lost = False
    for names in RAIL_FIGURES[figure]:
        parts = {name: _queue_growth(counters, host, device, name, span_ns) for name in names}
        known = [part for part in parts.values() if not math.isnan(part)]
        unknown = (name for name, part in parts.items() if math.isnan(part))
        lost = lost or any(_rail_counts(counters, host, device, name) for name in unknown)
        if known and (len(known) == len(parts) or figure in _PARTIAL):
            return math.fsum(known), lost
    return math.nan, lost


def _rail_counts(counters: throughput.CachedTable, host: str, device: str, name: str) -> bool:
    return len(throughput.samples(counters, node=host, port=device, counter=name)[0]) > 0


def _queue_growth(
    counters: throughput.CachedTable, host: str, device: str, name: str, span_ns: tuple[int, int]
) -> float:
    return throughput.counter_growth(
        counters, node=host, port=device, counter=name, span_ns=span_ns, wraps_at=QUEUE_WRAPS_AT
    )


def switch_ports(counters: throughput.CachedTable, span_ns: tuple[int, int]) -> tuple[SwitchPort, ...]:
    """Return a row for each port that the collector `snmp` sampled; `counters` is the run's table."""
    return tuple(
        _switch_port(counters, node, label, span_ns) for node, label in counters.once("switches' ports", _sampled_ports)
    )


def _sampled_ports(counters: Any) -> list[tuple[str, str]]:
    """Return the asking node and label ("leaf1:Ethernet4") of each port, in order; of the run's table (pyarrow)."""
    import pyarrow.compute as pc

    rows = counters.filter(pc.equal(counters["counter"], SWITCH_FIGURES["in_bytes"][0]))
    return sorted((row["node"], row["port"]) for row in rows.group_by(["node", "port"]).aggregate([]).to_pylist())


def _switch_port(counters: throughput.CachedTable, node: str, label: str, span_ns: tuple[int, int]) -> SwitchPort:
    switch, _, port = label.partition(":")
    known = not _restarted(counters, node, switch, span_ns)
    grown = {
        name: throughput.counter_growth(
            counters,
            node=node,
            port=label,
            counter=counter,
            span_ns=span_ns,
            wraps_at=_SNMP_WRAPS_AT if rolls else None,
        )
        if known
        else math.nan
        for name, (counter, rolls) in SWITCH_FIGURES.items()
    }
    return SwitchPort(switch=switch, port=port, figures=grown)


def _restarted(counters: throughput.CachedTable, node: str, switch: str, span_ns: tuple[int, int]) -> bool:
    """Return whether the switch began to count anew around the window."""
    times, values = throughput.samples(counters, node=node, port=switch, counter=_UP_TIME)
    first, last = np.searchsorted(times, span_ns)
    return bool(np.any(np.diff(values[max(0, first - 1) : last + 1]) < 0))
