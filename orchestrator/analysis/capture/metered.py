"""Make the tables of captures from what a meter counted in the kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from orchestrator.analysis.capture.captures import Ends, Job, Tables, rules_of
from orchestrator.analysis.capture.directions import HostNumbers, address_text
from orchestrator.analysis.capture.stages.decoding import SCOPE_V4, SCOPE_V6
from orchestrator.analysis.capture.trace import ETHERTYPE, OVERFLOW, protocol_name
from orchestrator.parts.launch import Flow
from orchestrator.parts.rows import Columns
from orchestrator.parts.shared import meter_files
from orchestrator.parts.shared.meter_files import FIGURES, Metered

Ints = np.ndarray[Any, np.dtype[np.int64]]
KEY_WORDS = meter_files.KEY.itemsize // 8
FLOW_WORDS = KEY_WORDS - 1  # without the bin
_SHOWN = ("packets", "wire_bytes", "payload_bytes")


@dataclass(frozen=True, slots=True)
class _Bins:
    """Entries of a meter: place of the flow, number of the bin, and figures, as arrays of equal length."""

    width_ns: int
    flow: Ints
    number: Ints
    figures: Mapping[str, Ints]

    def of(self, flows: Any) -> _Bins:
        """Return those of some flows (a mask of flows)."""
        mine = flows[self.flow]
        figures = {name: values[mine] for name, values in self.figures.items()}
        return _Bins(self.width_ns, self.flow[mine], self.number[mine], figures)

    def summed(self, group_of: Ints, width_ns: int) -> _Bins:
        """Return sums over groups of flows in wider bins, ordered by bin and group; `flow` is the group then."""
        numbers, groups = self.number * self.width_ns // width_ns, group_of[self.flow]
        code, first = _coded((numbers, groups))
        sums = {name: _summed(values, code, len(first)) for name, values in self.figures.items()}
        return _Bins(width_ns, groups[first], numbers[first], sums)


def reduce(job: Job) -> Tables:
    """Return the tables of a meter's port: those of a capture, without what sequence numbers and stamps would tell.

    `job` has the meter's file in the place of a capture's. Instants of bins are moved by whole bins, so that clocks of
    hosts that differ leave half a bin. CaptureError where the file is none of a meter.
    """
    found = meter_files.read(job.files[0].parent)
    words = np.ascontiguousarray(found.keys).view(np.uint64).reshape(-1, KEY_WORDS)
    flow, place_of = _coded(tuple(words[:, :FLOW_WORDS].T))
    flows = found.keys[place_of]
    start = found.keys["bin"].astype(np.int64) * found.width_ns + job.offset_ns
    number = (start + found.width_ns // 2) // found.width_ns
    figures = {name: found.values[name].astype(np.int64) for name in FIGURES}
    first = start + found.values["first"].astype(np.int64)
    last = start + found.values["last"].astype(np.int64)

    born, died = np.full(len(flows), np.iinfo(np.int64).max), np.zeros(len(flows), np.int64)
    np.minimum.at(born, flow, first)
    np.maximum.at(died, flow, last)
    order = np.argsort(born, kind="stable")
    place = np.empty(len(flows), np.int64)
    place[order] = np.arange(len(flows))
    flows, bins = flows[order], _Bins(found.width_ns, place[flow], number, figures)
    ends, out = _ends(flows), flows["direction"] == 1
    rule, rules = rules_of(ends, job.flows)
    made, made_rules = rules_of(ends, job.generated)
    named = [rules[one] for one in rule]
    sums = {name: _summed(bins.figures[name], bins.flow, len(flows)) for name in _SHOWN}
    capture_flows = {
        **_flow_rows(job, ends, out, named),
        **sums,
        "repeated_bytes": np.zeros(len(flows), np.int64),
        "first_ns": born[order],
        "last_ns": died[order],
    }
    kept = _kept(bins.flow, sums["wire_bytes"], job.most_fine)
    if not kept.all():
        _add_others(capture_flows, ~kept)
    return Tables(
        capture_flows=capture_flows,
        packets=_packet_rows(job, bins, out, named),
        cross_packets=_packet_rows(job, bins, out, [made_rules[one] for one in made], kind="cross"),
        flow_packets=_fine_rows(job, bins.summed(np.where(kept, np.arange(len(flows)), len(flows)), bins.width_ns)),
        sightings=np.zeros((0, 0), np.int64),
        problems=_problems(job, found),
    )


def _coded(columns: Sequence[Any]) -> tuple[Ints, Ints]:
    """Return a number for each row of columns, equal for equal rows and in the order of their values.

    With them, the place of a row of each number.
    """
    code = np.zeros(len(columns[0]), np.int64)
    first = code[:0]
    for column in columns:
        known, own = np.unique(column, return_inverse=True)
        _, first, code = np.unique(code * len(known) + own, return_index=True, return_inverse=True)
    return code, first


def _problems(job: Job, found: Metered) -> tuple[str, ...]:
    return () if found.ended else (f"{job.port}: the meter did not end by itself: what it counted last is missing",)


def _ends(flows: Any) -> Ends:
    hosts = HostNumbers()

    def numbers(column: str) -> Ints:
        return np.array([hosts.number(_text(int(one["version"]), bytes(one[column]))) for one in flows], np.int64)

    src, dst = numbers("src"), numbers("dst")
    protocol = flows["protocol"].astype(np.int64)
    nowhere = np.full(len(flows), -1, np.int64)
    return Ends(
        hosts=hosts.names,
        protocol=np.where(flows["version"] == 0, ETHERTYPE + protocol, protocol),
        src=src,
        dst=dst,
        src_port=flows["src_port"].astype(np.int64),
        dst_port=flows["dst_port"].astype(np.int64),
        outer_src=nowhere,
        outer_dst=nowhere,
        src_mac=nowhere,
    )


def _text(version: int, address: bytes) -> str:
    if version == 6:
        return address_text(SCOPE_V6, int.from_bytes(address[:8], "big"), int.from_bytes(address[8:], "big"))
    return address_text(SCOPE_V4, 0, int.from_bytes(address[:4], "big")) if version == 4 else ""


def _summed(values: Ints, group: Ints, groups: int) -> Ints:
    found = np.zeros(groups, np.int64)
    np.add.at(found, group, values)
    return found


def _kept(flow: Ints, wire_bytes: Ints, most: int) -> Any:
    """Return which flows keep bins of their own: those with the most bytes, as many as have no more than `most`."""
    bins = np.bincount(flow, minlength=len(wire_bytes))
    order = np.argsort(-wire_bytes, kind="stable")
    found = np.ones(len(wire_bytes), np.bool_)
    found[order] = np.cumsum(bins[order]) <= most
    return found


def _flow_rows(job: Job, ends: Ends, out: Any, rules: list[Flow]) -> dict[str, Any]:
    names, count = np.array([*ends.hosts, ""], object), len(out)
    return {
        "port": [job.port] * count,
        "direction": _way(out),
        "protocol": [protocol_name(int(one)) for one in ends.protocol],
        "src": names[ends.src],
        "src_port": ends.src_port,
        "dst": names[ends.dst],
        "dst_port": ends.dst_port,
        **{name: [""] * count for name in ("tunnel", "outer_src", "outer_dst")},
        "kind": [rule.kind for rule in rules],
        "name": [rule.name for rule in rules],
    }


def _add_others(rows: dict[str, Any], folded: Any) -> None:
    """Append the flow whose bins are the sums of those of the flows that have none of their own."""
    first, last = rows["first_ns"][folded].min(), rows["last_ns"][folded].max()
    others = {"port": rows["port"][0], "direction": "in", "protocol": protocol_name(OVERFLOW), "kind": "other"}
    more = {"first_ns": first, "last_ns": last, **dict.fromkeys(("src_port", "dst_port", *_SHOWN, "repeated_bytes"), 0)}
    for name, values in rows.items():
        rows[name] = [*values, {**others, **more}.get(name, "")]


def _packet_rows(job: Job, bins: _Bins, out: Any, rules: list[Flow], *, kind: str | None = None) -> Columns:
    """Return rows of the bins of all packets, by name and direction; of one kind, or of all."""
    groups: dict[tuple[str, str, bool], int] = {}
    group_of = np.array(
        [
            groups.setdefault((rule.kind, rule.name, bool(leaves)), len(groups)) if kind in (None, rule.kind) else -1
            for rule, leaves in zip(rules, out, strict=True)
        ],
        np.int64,
    )
    found = bins.of(group_of >= 0).summed(group_of, bins.width_ns if kind else job.bin_ns)
    kinds, names, ways = (np.array([one[place] for one in groups], object)[found.flow] for place in range(3))
    return {
        "port": [job.port] * len(found.flow),
        "direction": _way(ways),
        "kind": kinds,
        "name": names,
        "bin_ns": found.number * found.width_ns,
        **{name: found.figures[name] for name in _SHOWN},
        "repeated_bytes": np.zeros(len(found.flow), np.int64),
        **({} if kind else {"frames": found.figures["frames"], "captured_bytes": found.figures["bytes"]}),
    }


def _fine_rows(job: Job, bins: _Bins) -> Columns:
    return {
        "port": [job.port] * len(bins.flow),
        "flow": bins.flow,
        "bin_ns": bins.number * bins.width_ns,
        "width_ns": np.full(len(bins.flow), bins.width_ns),
        **{name: bins.figures[name] for name in _SHOWN},
        "repeated_bytes": np.zeros(len(bins.flow), np.int64),
    }


def _way(out: Any) -> Any:
    return np.array(["in", "out"], object)[np.asarray(out, np.int64)]
