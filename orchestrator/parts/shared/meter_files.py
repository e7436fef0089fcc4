"""What the collector `meter` leaves: bins of flows that the kernel counted, as arrays, checked entry by entry."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from orchestrator.agents import meter
from orchestrator.agents.agent import bpf
from orchestrator.core.errors import CaptureError
from orchestrator.core.paths import safepath
from orchestrator.parts.rows import MOST_ROWS

# struct flow_bin, struct counts, and a struct entry in a ring, of orchestrator/agents/meter.c
KEY = np.dtype(
    [
        ("src", "u1", 16), ("dst", "u1", 16), ("src_port", ">u2"), ("dst_port", ">u2"), ("protocol", "<u2"),
        ("direction", "u1"), ("version", "u1"), ("bin", "<u8"),
    ]
)  # fmt: skip
FIGURES = ("packets", "bytes", "frames", "wire_bytes", "payload_bytes")
VALUE = np.dtype([(name, "<u8") for name in (*FIGURES, "first", "last")])
RECORD = np.dtype([("head", "u1", bpf.RECORD_HEAD), ("key", KEY), ("value", VALUE)])
FILE = meter.FILE
MOST_BINS = 1 << 62  # nanoseconds since the epoch, beyond which an instant is none
MOST_COUNTED = 1 << 38  # packets or bytes of a flow in a bin, beyond which it is nonsense
WIDEST_NS = 10**10

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Metered:
    """The entries of a meter (KEY and VALUE, of equal length), and the width of their bins.

    `lost_packets` and `lost_bytes` had no place in a full ring. `ended`: it was told to end and wrote everything;
    `odd`: entries that were left out, since they cannot be.
    """

    keys: Array
    values: Array
    width_ns: int
    lost_packets: int
    lost_bytes: int
    ended: bool
    odd: int


def read(folder: Path) -> Metered:
    """Return what a meter wrote in its folder; CaptureError where that is no file of a meter.

    A block that was cut short, as by a crash, is left out.
    """
    data = safepath.content(folder / meter.FILE)
    if data is None or len(data) < meter.HEAD.size:
        raise CaptureError(f"{meter.FILE}: there is none, or it is empty")
    magic, record_bytes, width_ns = meter.HEAD.unpack_from(data)
    if (magic, record_bytes) != (meter.MAGIC, RECORD.itemsize) or not 0 < width_ns <= WIDEST_NS:
        raise CaptureError(f"{meter.FILE}: it is no file of a meter of this version")
    records = [np.zeros(0, RECORD)]
    at, rows, ended, lost = meter.HEAD.size, 0, False, (0, 0)
    while at + meter.BLOCK.size <= len(data) and not ended:
        kind, count, _, *said = meter.BLOCK.unpack_from(data, at)
        begin = at + meter.BLOCK.size
        at = begin + count * RECORD.itemsize
        if kind not in (meter.COUNTED, meter.ENDED):
            raise CaptureError(f"{meter.FILE}: byte {begin - meter.BLOCK.size} begins no block")
        if at > len(data):
            break
        rows += count
        if rows > MOST_ROWS:
            raise CaptureError(f"{meter.FILE}: it has more than {MOST_ROWS:,} entries")
        records.append(np.frombuffer(data, RECORD, count, begin))
        lost, ended = (min(said[0], 1 << 62), min(said[1], 1 << 62)), kind == meter.ENDED
    found = np.concatenate(records)
    key, value = found["key"], found["value"]
    sound = _sound(key, value, width_ns)
    return Metered(key[sound], value[sound], width_ns, *lost, ended, int(len(key) - sound.sum()))


def _sound(key: Array, value: Array, width_ns: int) -> Array:
    found = (key["direction"] <= 1) & np.isin(key["version"], (0, 4, 6)) & (key["bin"] < MOST_BINS // width_ns)
    for name in FIGURES:
        found &= value[name] < MOST_COUNTED
    for name in ("first", "last"):
        found &= value[name] < width_ns
    return np.asarray(found & (value["packets"] > 0))
