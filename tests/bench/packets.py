"""Captures for benchmarks: TCP flows of full segments as `tcpdump -s 96` keeps them, written as fast as can be."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from orchestrator.analysis.capture import pcap

SNAP = 96
PAYLOAD = 1448
_AT_ONCE = 1 << 18  # packets in memory
RECORD = np.dtype(
    [("s", "<u4"), ("ns", "<u4"), ("kept", "<u4"), ("wire", "<u4"), ("dst", "V6"), ("src", "V6"), ("type", ">u2"),
     ("ver", "u1"), ("tos", "u1"), ("length", ">u2"), ("id", ">u2"), ("frag", ">u2"), ("ttl", "u1"), ("proto", "u1"),
     ("sum", ">u2"), ("from", ">u4"), ("to", ">u4"), ("sport", ">u2"), ("dport", ">u2"), ("seq", ">u4"), ("ack", ">u4"),
     ("offset", "u1"), ("flags", "u1"), ("window", ">u2"), ("tcpsum", ">u2"), ("urgent", ">u2"), ("options", "V12"),
     ("data", "V30")]
)  # fmt: skip
_HOSTS = 250  # an address has so many flows


def write(path: Path, packets: int, *, flows: int, in_a_row: int = 1, first: int = 0, mean_ns: int = 10_000) -> Path:
    """A nanosecond pcap: flows take turns, `in_a_row` packets each; packets `first` and on of an endless capture."""
    rng = np.random.default_rng(first + 1)
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, SNAP, pcap.ETHERNET))
        for begin in range(first, first + packets, _AT_ONCE):
            count = min(_AT_ONCE, first + packets - begin)
            _records(np.arange(begin, begin + count), rng, flows, in_a_row, mean_ns).tofile(file)
    return path


def _records(number: np.ndarray, rng: np.random.Generator, flows: int, in_a_row: int, mean_ns: int) -> np.ndarray:
    rows = np.zeros(len(number), RECORD)
    instants = 1_700_000_000 * 10**9 + number * mean_ns + rng.integers(0, mean_ns, len(number))
    turn, place = np.divmod(number // in_a_row, flows)
    flow, segment = place, turn * in_a_row + number % in_a_row
    rows["s"], rows["ns"] = instants // 10**9, instants % 10**9
    rows["kept"], rows["wire"] = RECORD.itemsize - 16, 66 + PAYLOAD
    rows["dst"], rows["src"] = bytes([2, 0, 0, 0, 0, 2]), bytes([2, 0, 0, 0, 0, 1])
    rows["type"], rows["ver"], rows["length"], rows["ttl"], rows["proto"] = 0x0800, 0x45, 52 + PAYLOAD, 64, 6
    rows["from"], rows["to"] = 0xC6120001, 0xC6130001 + flow // _HOSTS
    rows["sport"], rows["dport"] = 40_000 + flow % _HOSTS, 5201
    rows["seq"], rows["ack"] = segment * PAYLOAD % 2**32, 1
    rows["offset"], rows["flags"], rows["window"] = 0x80, 0x10, 500
    return rows
