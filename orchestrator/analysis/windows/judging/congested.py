"""What the device of each rail counted of congestion and of losses in a window, under one name whatever its driver.

Names of counters are those of Linux: drivers/infiniband/hw/{mlx5/counters.c, bnxt_re/hw_counters.c} and
drivers/net/ethernet/mellanox/mlx5/core/en_stats.c, broadcom/bnxt/bnxt_ethtool.c, pensando/ionic/ionic_stats.c. Those of
RDMA on ionic come from its firmware (ionic_hw_stats.c asks it), as AMD's `amd-smi` and node-scraper know them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from orchestrator.analysis.traffic import throughput
from orchestrator.analysis.windows.judging.judgement import gate
from orchestrator.parts.protocols import end_name
from orchestrator.parts.topology import Topology
from orchestrator.store.manifests.window_records import Gate

PRIORITIES = range(8)  # of IEEE 802.1Qbb
WRAPS_AT = 1 << 32  # mlx5's counters of queues have 32 bits

# A figure, and for mlx5, bnxt_re and ionic the counters of which the sum is it; the first that are all there count.
SIGNS: Mapping[str, tuple[tuple[str, ...], ...]] = MappingProxyType(
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
LOSSES = ("out_of_sequence", "retransmits", "timeouts", "discards")
PAUSES = ("pfc_rx", "pfc_tx")
NEEDED = tuple(dict.fromkeys(name for ways in SIGNS.values() for names in ways for name in names))


@dataclass(frozen=True, slots=True, kw_only=True)
class Congestion:
    """A rail of a host in a window: by how much each figure grew, NaN for what its device does not count.

    Of what is `lost` the device has counters, and by how much they grew is not known.
    """

    host: str
    rail: int
    device: str
    figures: Mapping[str, float]
    lost: frozenset[str] = frozenset()

    @property
    def row(self) -> dict[str, object]:
        return {"host": self.host, "rail": self.rail, "device": self.device, **self.figures}


def found(counters: throughput.Kept, topology: Topology, span_ns: tuple[int, int]) -> tuple[Congestion, ...]:
    """A row for each rail whose device counts any of it; `counters` is the run's table."""
    ends = [(host.name, rail, device) for host in topology.hosts for rail, device in enumerate(host.devices)]
    rows = []
    for host, rail, device in ends:
        grown = {name: _grown(counters, host, device, name, span_ns) for name in SIGNS}
        rows.append(
            Congestion(
                host=host,
                rail=rail,
                device=device,
                figures={name: value for name, (value, _) in grown.items()},
                lost=frozenset(name for name, (_, lost) in grown.items() if lost),
            )
        )
    return tuple(row for row in rows if row.lost or not all(map(math.isnan, row.figures.values())))


def _grown(
    counters: throughput.Kept, host: str, device: str, figure: str, span_ns: tuple[int, int]
) -> tuple[float, bool]:
    """By how much a figure grew, and whether it was sampled without that being known of all of it."""
    lost = False
    for names in SIGNS[figure]:
        parts = {name: _one(counters, host, device, name, span_ns) for name in names}
        known = [part for part in parts.values() if not math.isnan(part)]
        unknown = (name for name, part in parts.items() if math.isnan(part))
        lost = lost or any(_sampled(counters, host, device, name) for name in unknown)
        if known and (len(known) == len(parts) or figure in _PARTIAL):
            return math.fsum(known), lost
    return math.nan, lost


def _sampled(counters: throughput.Kept, host: str, device: str, name: str) -> bool:
    return len(throughput.samples(counters, node=host, port=device, counter=name)[0]) > 0


def _one(counters: throughput.Kept, host: str, device: str, name: str, span_ns: tuple[int, int]) -> float:
    return throughput.counter_growth(counters, node=host, port=device, counter=name, span_ns=span_ns, wraps_at=WRAPS_AT)


def judge_congestion(rows: Iterable[Congestion], *, required: bool) -> Iterator[Gate]:
    """Two gates for each rail: packets of RDMA were lost or sent again, and the network or the host paused the other.

    TCP finds its rate by losses, RoCE is built on having none: its window counts only where nothing was lost or paused,
    or is remarked upon where that is not `required`.
    """
    for row in rows:
        name = end_name(row.host, row.rail)
        for kind, figures in (("losses", LOSSES), ("pauses", PAUSES)):
            counted = {figure: row.figures[figure] for figure in figures if not math.isnan(row.figures[figure])}
            lost = [figure.replace("_", " ") for figure in figures if figure in row.lost]
            if not counted and not lost:
                continue
            total = math.fsum(counted.values())
            counts = ", ".join(f"{figure.replace('_', ' ')} {count:.0f}" for figure, count in counted.items() if count)
            text = f"{name} ({row.device}): {counts}" if counts else f"{name} ({row.device}): no {kind}"
            text += f"; not known: {', '.join(lost)}" if lost else ""
            passed = None if lost and total == 0 else total == 0
            yield gate(kind, passed, text, measured=total, limit=0, required=required)
