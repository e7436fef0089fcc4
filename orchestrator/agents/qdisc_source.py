"""Queue counters of network devices for the sampler, from the kernel's queueing disciplines.

Arguments: seconds between samples, 1 to keep also the queueing disciplines below the root, then the devices, each as
DEVICE/RATE with what its link carries in bit/s of layer 2 (0: not known).
"""

from __future__ import annotations

import os
import socket
import struct
import sys

MYPY = False
if MYPY:
    from typing import Iterator

NETLINK_ROUTE, RTM_NEWQDISC, RTM_GETQDISC = 0, 36, 38
NLM_F_REQUEST, NLM_F_DUMP, NLMSG_ERROR, NLMSG_DONE = 1, 0x300, 2, 3
TCA_KIND, TCA_STATS2 = 1, 7
TCA_STATS_BASIC, TCA_STATS_QUEUE, TCA_STATS_PKT64 = 1, 3, 8
TC_H_ROOT = 0xFFFFFFFF

COUNTERS = ("bytes", "packets", "backlog_packets", "backlog_bytes", "drops", "requeues", "overlimits")
BACKLOG = COUNTERS.index("backlog_bytes")


def attributes(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield type, start and end of each attribute's content."""
    while at + 4 <= end:
        length, kind = struct.unpack_from("=HH", data, at)
        if length < 4:
            return
        yield kind & 0x3FFF, at + 4, at + length
        at += (length + 3) & ~3


def counters(data: bytes, start: int, end: int) -> tuple[int, ...]:
    """Return the values of COUNTERS in a TCA_STATS2 attribute; drops, requeues and overlimits wrap at 32 bits."""
    octets = packets = 0
    queue = (0, 0, 0, 0, 0)
    wide = None
    for kind, at, _ in attributes(data, start, end):
        if kind == TCA_STATS_BASIC:
            octets, packets = struct.unpack_from("=QI", data, at)
        elif kind == TCA_STATS_PKT64:
            wide = struct.unpack_from("=Q", data, at)[0]
        elif kind == TCA_STATS_QUEUE:
            queue = struct.unpack_from("=5I", data, at)
    return (octets, packets if wide is None else wide, *queue)


class Queues:
    """One dump of the kernel's queueing disciplines a sample, with their backlogs as time on the link.

    `rates` is what the link of each device carries, in bit/s; 0 where that is not known.
    """

    name = "qdisc"

    def __init__(self, rates: dict[str, float], every_s: float, children: bool) -> None:
        devices, self.rates = list(rates), rates
        self.every_s = every_s
        self.children = children
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_ROUTE)
        self.socket.settimeout(1.0)
        indices = {name: index for index, name in socket.if_nameindex()}
        for device in devices:
            if device not in indices:
                raise OSError("there is no network device %s" % device)
        self.names = frozenset(devices)
        self.devices = {indices[device]: device for device in devices}
        self.changed = False
        self.labels = list(self.dump())
        for device in devices:
            if not any(label.startswith(device + "|") for label in self.labels):
                print("qdisc: %s has none" % device, file=sys.stderr, flush=True)
        if not self.labels:
            raise OSError("no queueing discipline on " + ", ".join(devices))
        self.columns = ["%s.%s" % (label, name) for label in self.labels for name in (*COUNTERS, "backlog_s")]

    def rows(self) -> list[list[object]]:
        found = self.dump()
        if not all(label in found for label in self.labels):  # a driver that is loaded anew gives a device a new number
            now = {index: name for index, name in socket.if_nameindex() if name in self.names}
            if now != self.devices:
                self.devices = now
                found = self.dump()
        if not self.changed and list(found) != self.labels:
            self.changed = True
            print("qdisc: changed from %s to %s" % (self.labels, list(found)), file=sys.stderr, flush=True)
        missing: tuple[object, ...] = ("",) * (len(COUNTERS) + 1)
        row: list[object] = []
        for label in self.labels:
            row.extend(found.get(label, missing))
        return [row]

    def dump(self) -> dict[str, tuple[object, ...]]:
        """Return the label of each kept queueing discipline ("eth0|qdisc.tbf") and the values of its columns."""
        header = struct.pack("=IHHII", 36, RTM_GETQDISC, NLM_F_REQUEST | NLM_F_DUMP, 0, 0)
        self.socket.send(header + bytes(20))
        found: dict[str, tuple[object, ...]] = {}
        while True:
            data = self.socket.recv(65536)
            at = 0
            while at + 16 <= len(data):
                length, kind = struct.unpack_from("=IH", data, at)
                if kind == NLMSG_DONE:
                    return found
                if kind == NLMSG_ERROR:
                    code = -struct.unpack_from("=i", data, at + 16)[0]
                    raise OSError(code, os.strerror(code))
                if kind == RTM_NEWQDISC:
                    self.note(found, data, at, at + length)
                at += (length + 3) & ~3

    def note(self, found: dict[str, tuple[object, ...]], data: bytes, start: int, end: int) -> None:
        index, _, parent = struct.unpack_from("=4xiII", data, start + 16)
        device = self.devices.get(index)
        if device is None or (parent != TC_H_ROOT and not self.children):
            return
        name, values = "", (0,) * len(COUNTERS)
        for kind, at, stop in attributes(data, start + 36, end):
            if kind == TCA_KIND:
                name = data[at:stop].rstrip(b"\0").decode("ascii", "replace")
            elif kind == TCA_STATS2:
                values = counters(data, at, stop)
        place = "" if parent == TC_H_ROOT else "@%x:%x" % (parent >> 16, parent & 0xFFFF)
        rate = self.rates[device]
        waiting = "%.9f" % (8 * values[BACKLOG] / rate) if rate else ""
        found["%s|qdisc.%s%s" % (device, name, place)] = (*values, waiting)


def open_streams(arguments: list[str]) -> list[object]:
    pairs = [argument.rpartition("/")[::2] for argument in arguments[2:]]
    return [Queues({device: float(rate) for device, rate in pairs}, float(arguments[0]), arguments[1] == "1")]
