"""What switches counted at their ports in a window, as the collector `snmp` sampled it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType
from typing import Any

import numpy as np

from orchestrator.analysis.traffic import throughput
from orchestrator.analysis.windows.judging.judgement import gate
from orchestrator.store.manifests.window_records import Gate

_UP_TIME = "snmp.sysUpTime"
_WRAPS_AT = 1 << 32  # a Counter32 of SMIv2 (RFC 2578); those of octets have 64 bits

# A figure, the counter of IF-MIB that it is, and whether that rolls over.
FIGURES = MappingProxyType(
    {
        "in_bytes": ("snmp.ifHCInOctets", False),
        "out_bytes": ("snmp.ifHCOutOctets", False),
        "in_discards": ("snmp.ifInDiscards", True),
        "out_discards": ("snmp.ifOutDiscards", True),
        "in_errors": ("snmp.ifInErrors", True),
        "out_errors": ("snmp.ifOutErrors", True),
    }
)
LOST = ("in_discards", "out_discards", "in_errors", "out_errors")
NEEDED = (_UP_TIME, *(counter for counter, _ in FIGURES.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchPort:
    """A port of a switch in a window: by how much each figure grew, NaN where it is not known."""

    switch: str
    port: str
    figures: Mapping[str, float]

    @property
    def row(self) -> dict[str, object]:
        return {"switch": self.switch, "port": self.port, **self.figures}


def found(counters: throughput.Kept, span_ns: tuple[int, int]) -> tuple[SwitchPort, ...]:
    """A row for each port that was sampled; `counters` is the run's table."""
    return tuple(_port(counters, node, label, span_ns) for node, label in counters.once("switches' ports", _sampled))


def _sampled(counters: Any) -> list[tuple[str, str]]:
    """The node that asked and the label of each port ("leaf1:Ethernet4"), in order; of the run's table (pyarrow)."""
    import pyarrow.compute as pc

    rows = counters.filter(pc.equal(counters["counter"], FIGURES["in_bytes"][0]))
    return sorted((row["node"], row["port"]) for row in rows.group_by(["node", "port"]).aggregate([]).to_pylist())


def _port(counters: throughput.Kept, node: str, label: str, span_ns: tuple[int, int]) -> SwitchPort:
    switch, _, port = label.partition(":")
    known = not _restarted(counters, node, switch, span_ns)
    grown = {
        name: throughput.counter_growth(
            counters, node=node, port=label, counter=counter, span_ns=span_ns, wraps_at=_WRAPS_AT if rolls else None
        )
        if known
        else math.nan
        for name, (counter, rolls) in FIGURES.items()
    }
    return SwitchPort(switch=switch, port=port, figures=grown)


def _restarted(counters: throughput.Kept, node: str, switch: str, span_ns: tuple[int, int]) -> bool:
    """Whether the switch began to count anew around the window."""
    times, values = throughput.samples(counters, node=node, port=switch, counter=_UP_TIME)
    first, last = np.searchsorted(times, span_ns)
    return bool(np.any(np.diff(values[max(0, first - 1) : last + 1]) < 0))


def judge_switches(ports: Iterable[SwitchPort], *, required: bool) -> Iterator[Gate]:
    """A gate for each switch: its ports discarded nothing and found nothing damaged."""
    for switch, rows in groupby(sorted(ports, key=lambda one: one.switch), key=lambda one: one.switch):
        known = {
            row.port: {name: row.figures[name] for name in LOST}
            for row in rows
            if not all(math.isnan(row.figures[name]) for name in LOST)
        }
        if not known:
            text = f"{switch}: not known what its ports lost"
            yield gate("switch", None, text, measured=math.nan, limit=0, required=required)
            continue
        losses = [f"{port}: {lost}" for port, counted in known.items() if (lost := _listed(counted))]
        total = math.fsum(count for counted in known.values() for count in counted.values() if count > 0)
        fine = f"{len(known)} port{'s' if len(known) > 1 else ''} lost nothing"
        text = f"{switch}: {'; '.join(losses) or fine}"
        yield gate("switch", total == 0, text, measured=total, limit=0, required=required)


def _listed(counted: Mapping[str, float]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {count:.0f}" for name, count in counted.items() if count > 0)
