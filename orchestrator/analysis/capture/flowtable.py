"""Reads capture files in a stream into tables of conversations, and hands out what each carried in bins of time."""

from __future__ import annotations

import ipaddress
import os
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from orchestrator.analysis.capture import accounting, decoding, framing, queuepairs
from orchestrator.analysis.capture import sightings as sighting
from orchestrator.analysis.capture.pcap import ETHERNET, Batch, FileEnd, packets_of
from orchestrator.analysis.capture.trace import ETHERTYPE, OVERFLOW, RUNT, protocol_name

BATCH = 512  # packets: their frames and headers stay in a core's own cache
_BINS_A_CALL = 1 << 13
_FIRST_CONVERSATIONS = 1 << 10
_FIRST_HOLES = 1 << 6

Bins = np.ndarray[Any, np.dtype[np.int64]]
OnBins = Callable[["FlowTable", Bins], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """Who a direction of a conversation is from and to; addresses are hardware addresses where there is no IP."""

    protocol: int  # as in trace.Flows
    src: str
    src_port: int
    dst: str
    dst_port: int
    src_mac: int
    dst_mac: int

    @property
    def protocol_name(self) -> str:
        return protocol_name(self.protocol)


class FlowTable:
    """Every conversation seen so far, over one file or a rotated set: TCP's sequence numbers go on from file to file.

    Row 2 n and 2 n + 1 are the directions of conversation n; one that sent nothing has no packets, and rows 0 and 1
    are all conversations beyond those that are told apart. Bins of `bin_ns` nanoseconds are handed to `on_bins` as
    rows as accounting lays them out, which it has to copy. A direction and
    bin comes once, bin after bin, unless packets' stamps went back (`counts[accounting.BACK_BINS]`). Instants are the
    file's plus `offset_ns`. `segment`: the MTU of a device that cuts longer packets after they are captured; wire
    bytes are then of its frames. `sightings` note single packets. Once another thread sets `stop`, nothing is read.
    """

    def __init__(
        self,
        *,
        offset_ns: int = 0,
        bin_ns: int,
        segment: int | None = None,
        on_bins: OnBins,
        sightings: sighting.Sightings | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        self.offset_ns = offset_ns
        self.bin_ns = bin_ns
        self.segment = segment
        self.counts = accounting.empty_state()
        self.undecoded = np.zeros(decoding.DECODE_COUNTS, np.int64)
        self.link_types: set[int] = set()
        self.queue_pairs = queuepairs.QueuePairTable()
        self._on_bins = on_bins
        self._sightings = sightings
        self._stop = stop or threading.Event()
        self._headers = decoding.empty_headers(BATCH)
        self._slots, self._keys, self._shared, self._directions, self._active = accounting.empty_conversations(
            _FIRST_CONVERSATIONS
        )
        self._holes = accounting.more_holes(np.zeros((0, 2 * (accounting.MOST_HOLES + 1)), np.int64), _FIRST_HOLES)
        self._out = np.zeros((_BINS_A_CALL, accounting.BIN_WORDS), np.int64)

    @property
    def directions(self) -> int:
        """Rows so far, those without packets among them."""
        return 2 * int(self.counts[accounting.CONVERSATIONS])

    def figures(self, column: int) -> Bins:
        """One of accounting's columns of all directions."""
        figures: Bins = self._directions[: self.directions, column]
        return figures

    def shared(self, column: int) -> Bins:
        """One of accounting's columns of all conversations."""
        figures: Bins = self._shared[: self.directions // 2, column]
        return figures

    def ends(self, row: int) -> Ends:
        """Who the direction in a row is."""
        high, low, other_high, other_low, word = (int(value) for value in self._keys[row // 2])
        ports = ((word >> 16) & 0xFFFF, word & 0xFFFF)
        scope, number = word >> 48, (word >> 32) & 0xFFFF
        macs = tuple(int(value) for value in self._directions[row, [accounting.FROM_MAC, accounting.TO_MAC]])
        addresses = (_address(scope, high, low), _address(scope, other_high, other_low))
        if row % 2:
            ports, addresses = ports[::-1], addresses[::-1]
        protocol = {decoding.SCOPE_LINK: ETHERTYPE + number, decoding.SCOPE_RUNT: RUNT}.get(scope, number)
        return Ends(
            protocol=OVERFLOW if row < 2 else protocol, src=addresses[0], src_port=ports[0], dst=addresses[1],
            dst_port=ports[1], src_mac=macs[0], dst_mac=macs[1],
        )  # fmt: skip

    def add(self, path: Path) -> FileEnd:
        """Read a file to its end. CaptureError when it is no capture, or of a link type that cannot be read."""
        before = int(self.counts[accounting.SEEN])
        frames = framing.empty_frames(BATCH)
        with packets_of(path, frames, offset_ns=self.offset_ns) as file:
            for batch in file.batches():
                if self._stop.is_set():
                    break
                self._take(batch)
            self.link_types |= file.link_types
            end = file.end(int(self.counts[accounting.SEEN]) - before)
        self._close_bins()
        return end

    def _take(self, batch: Batch) -> None:
        roce = self.undecoded[decoding.ROCE]
        decoding.decode(batch.data, batch.frames, batch.packets, self._headers, self.undecoded)
        if self.undecoded[decoding.ROCE] > roce:
            self.queue_pairs.add(batch.data, batch.frames, self._headers, batch.packets)
        if self._sightings is not None:
            self._sightings.add(batch.frames, self._headers, batch.packets)
        done = 0
        while done < batch.packets:
            why, done = accounting.account(
                batch.frames, self._headers, done, batch.packets, self.bin_ns, self.segment or 0, self._slots,
                self._keys, self._shared, self._directions, self._holes, self._active, self.counts, self._out,
            )  # fmt: skip
            if why == accounting.TABLE_FULL:
                self._grow()
            elif why == accounting.HOLES_FULL:
                self._holes = accounting.more_holes(self._holes, len(self._holes))
            elif why == accounting.BINS_FULL:
                self._hand_on()

    def _hand_on(self) -> None:
        used = int(self.counts[accounting.HANDED_OUT])
        self.counts[accounting.HANDED_OUT] = 0
        self._on_bins(self, self._out[:used])

    def _close_bins(self) -> None:
        """Hand out what is open at the end of a file; a later file may go on with the same bin."""
        number = int(self.counts[accounting.BIN_BEGIN]) // self.bin_ns
        while self.counts[accounting.ACTIVE]:
            self.counts[[accounting.ACTIVE, accounting.HANDED_OUT]] = accounting.hand_out_bins(
                self._directions, self._active, self.counts[accounting.ACTIVE], number, self._out,
                self.counts[accounting.HANDED_OUT],
            )  # fmt: skip
            self._hand_on()
        self._hand_on()

    def _grow(self) -> None:
        known = self.directions // 2
        slots, keys, shared, directions, active = accounting.empty_conversations(2 * len(self._keys))
        for old, new in ((self._keys, keys), (self._shared, shared), (self._directions, directions)):
            new[: len(old)] = old
        active[: len(self._active)] = self._active
        accounting.rehash(slots, keys, known)
        self._slots, self._keys, self._shared, self._directions, self._active = slots, keys, shared, directions, active


def warm() -> None:
    """Compile the reader now, so that no run waits for it: the compiled code is kept beside this package."""
    # In memory alone: whoever warms up may be killed at any moment, and is to leave no file.
    with os.fdopen(os.memfd_create("warm"), "rb") as file:
        path = Path(f"/proc/self/fd/{file.fileno()}")
        frame = bytes(60)
        head = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 96, ETHERNET)
        path.write_bytes(head + struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame)
        FlowTable(bin_ns=1_000_000, on_bins=lambda _table, _bins: None).add(path)
        path.write_bytes(struct.pack("<IIIHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0, -1, 28))
        FlowTable(bin_ns=1_000_000, on_bins=lambda _table, _bins: None).add(path)
    accounting.rehash(*accounting.empty_conversations(2)[:2], 0)
    queuepairs.warm()
    sighting.warm()


def mac_text(mac: int) -> str:
    """A hardware address as people write it."""
    return mac.to_bytes(6, "big").hex(":")


def address_text(v6: bool, high: int, low: int) -> str:
    """An IP address of the two words that the reader keeps."""
    if v6:
        return str(ipaddress.IPv6Address(((high & (1 << 64) - 1) << 64) | (low & (1 << 64) - 1)))
    return str(ipaddress.IPv4Address(low & 0xFFFFFFFF))


def _address(scope: int, high: int, low: int) -> str:
    if scope in (decoding.SCOPE_V4, decoding.SCOPE_V6):
        return address_text(scope == decoding.SCOPE_V6, high, low)
    return mac_text(low) if scope == decoding.SCOPE_LINK else ""
