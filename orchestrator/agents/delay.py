"""Delays packets of a netfilter queue by a fixed time, each from its arrival, and releases them in order.

Arguments: seconds, number of the queue. Prints "ready" once the queue is its own. Asked to end, it lets go what it
holds and writes into `delay.json` how long packets were held.
"""

from __future__ import annotations

import collections
import json
import math
import os
import select
import signal
import socket
import struct
import sys
import time
from pathlib import Path

MYPY = False
if MYPY:
    from typing import Deque, Dict, Iterator, List, Optional, Tuple, Union

NETLINK_NETFILTER, NETLINK_NO_ENOBUFS = 12, 5
SOL_NETLINK, SO_RCVBUFFORCE = 270, 33
NLM_F_REQUEST, NLM_F_ACK = 1, 4
NFNL_SUBSYS_QUEUE = 3 << 8
NFQNL_MSG_PACKET, NFQNL_MSG_CONFIG, NFQNL_MSG_VERDICT_BATCH = 0, 2, 3
NFQA_PACKET_HDR, NFQA_VERDICT_HDR, NFQA_TIMESTAMP = 1, 2, 4
NFQA_CFG_CMD, NFQA_CFG_PARAMS, NFQA_CFG_QUEUE_MAXLEN, NFQA_CFG_MASK, NFQA_CFG_FLAGS = 1, 2, 3, 4, 5
NFQNL_CFG_CMD_BIND, NFQNL_COPY_META, NFQA_CFG_F_GSO, NF_ACCEPT = 1, 1, 4, 1

MOST_HELD = 200_000  # packets; the kernel drops what comes beyond them
BUFFER_BYTES = 32 << 20
AT_ONCE = 256
STEP_NS = 10_000  # to which times held are counted
NO_STAMP_NS = 100_000_000  # an arrival longer ago than this is another clock's


def attribute(kind: int, content: bytes) -> bytes:
    return struct.pack("=HH", len(content) + 4, kind) + content + bytes(-len(content) % 4)


def message(kind: int, queue: int, content: bytes, *, flags: int = NLM_F_REQUEST) -> bytes:
    body = struct.pack(">BBH", socket.AF_UNSPEC, 0, queue) + content
    return struct.pack("=IHHII", 16 + len(body), NFNL_SUBSYS_QUEUE | kind, flags, 0, 0) + body


def attributes(data: bytes, at: int, end: int) -> Iterator[Tuple[int, int]]:
    """Yield type and start of each attribute's content."""
    while at + 4 <= end:
        length, kind = struct.unpack_from("=HH", data, at)
        if length < 4:
            return
        yield kind & 0x3FFF, at + 4
        at += (length + 3) & ~3


def arrivals(data: bytes) -> Iterator[Tuple[int, int]]:
    """Yield each packet's identity and arrival, nanoseconds since the epoch, 0 where the kernel did not stamp it."""
    at = 0
    while at + 20 <= len(data):
        length, kind = struct.unpack_from("=IH", data, at)
        if kind == NFNL_SUBSYS_QUEUE | NFQNL_MSG_PACKET:
            packet, stamp_ns = -1, 0
            for name, start in attributes(data, at + 20, at + length):
                if name == NFQA_PACKET_HDR:
                    (packet,) = struct.unpack_from(">I", data, start)
                elif name == NFQA_TIMESTAMP:
                    seconds, micros = struct.unpack_from(">QQ", data, start)
                    stamp_ns = seconds * 10**9 + micros * 1000
            yield packet, stamp_ns
        at += (max(length, 16) + 3) & ~3


class Queue:
    """A netfilter queue of this network namespace; OSError when another process has it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_NETFILTER)
        self.socket.bind((0, 0))
        try:
            self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
        except PermissionError:  # root of a user namespace alone
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        self.socket.setsockopt(SOL_NETLINK, NETLINK_NO_ENOBUFS, 1)
        flag = struct.pack(">I", NFQA_CFG_F_GSO)
        for content in (
            attribute(NFQA_CFG_CMD, struct.pack(">BBH", NFQNL_CFG_CMD_BIND, 0, 0)),
            attribute(NFQA_CFG_PARAMS, struct.pack(">IB", 0, NFQNL_COPY_META)),
            attribute(NFQA_CFG_QUEUE_MAXLEN, struct.pack(">I", MOST_HELD)),
            attribute(NFQA_CFG_FLAGS, flag) + attribute(NFQA_CFG_MASK, flag),
        ):
            self._ask(content)

    def _ask(self, content: bytes) -> None:
        self.socket.send(message(NFQNL_MSG_CONFIG, self.number, content, flags=NLM_F_REQUEST | NLM_F_ACK))
        while True:
            data = self.socket.recv(65536)
            if struct.unpack_from("=H", data, 4)[0] == 2:  # NLMSG_ERROR: the answer; else a packet came before it
                error = -struct.unpack_from("=i", data, 16)[0]
                if error:
                    raise OSError(error, os.strerror(error))
                return

    def let_go(self, last: int) -> None:
        """Accept every packet up to this one, so that it goes on its way."""
        verdict = attribute(NFQA_VERDICT_HDR, struct.pack(">II", NF_ACCEPT, last))
        self.socket.send(message(NFQNL_MSG_VERDICT_BATCH, self.number, verdict))

    def dropped(self) -> int:
        """Return how many packets the kernel dropped as too many were held, or this process did not keep up."""
        for line in Path("/proc/self/net/netfilter/nfnetlink_queue").read_text().splitlines():
            fields = line.split()
            if int(fields[0]) == self.number:
                return int(fields[5]) + int(fields[6])
        return 0


class Line:
    """Packets that are held, in order of arrival, and for how long released ones were."""

    def __init__(self, queue: Queue, hold_ns: int) -> None:
        self._queue, self._hold_ns = queue, hold_ns
        self._held: "Deque[Tuple[int, int, int]]" = collections.deque()  # when it is to go, when it came, which
        self._counts: "Dict[int, int]" = collections.Counter()

    def take(self) -> None:
        """Add the packets that the kernel has queued, without waiting."""
        for _ in range(AT_ONCE):
            try:
                data = self._queue.socket.recv(65536, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            now = time.time_ns()
            for packet, stamp_ns in arrivals(data):
                came = stamp_ns if 0 <= now - stamp_ns < NO_STAMP_NS else now
                self._held.append((came + self._hold_ns, came, packet))

    def wait_s(self) -> Optional[float]:
        """Return the seconds until the next packet is due; None when none is held."""
        return max(0, self._held[0][0] - time.time_ns()) / 1e9 if self._held else None

    def give(self, *, all_of_it: bool = False) -> None:
        """Release the packets that are due."""
        now, last = time.time_ns(), -1
        while self._held and (all_of_it or self._held[0][0] <= now):
            _, came, last = self._held.popleft()
            if not all_of_it:
                self._counts[(now - came) // STEP_NS] += 1
        if last >= 0:
            self._queue.let_go(last)

    def summary(self) -> "Dict[str, float]":
        """Return the packets held to their end, those dropped, and quantiles of the holding time in seconds."""
        total, below, quantiles = sum(self._counts.values()), 0, {}
        wanted = [("p50", 0.5), ("p99", 0.99), ("max", 1.0)]
        for step, count in sorted(self._counts.items()):
            below += count
            while wanted and below >= math.ceil(wanted[0][1] * total):
                quantiles["held_%s_s" % wanted.pop(0)[0]] = step * STEP_NS / 1e9
        return {"packets": total, "dropped": self._queue.dropped(), **quantiles}


def main() -> None:
    seconds, number = float(sys.argv[1]), int(sys.argv[2])
    try:
        queue = Queue(number)
    except OSError as error:
        sys.exit("netfilter queue %d cannot be had: %s" % (number, error))
    line = Line(queue, round(seconds * 1e9))
    ended, end = os.pipe()
    signal.signal(signal.SIGTERM, lambda *_: os.write(end, b"e"))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    watched: "List[Union[socket.socket, int]]" = [queue.socket, ended]
    print("ready", flush=True)
    while True:
        ready, _, _ = select.select(watched, [], [], line.wait_s())
        line.take()
        line.give()
        if ended in ready:
            break
    line.give(all_of_it=True)
    Path("delay.json").write_text(json.dumps({"requested_s": seconds, **line.summary()}))


if __name__ == "__main__":
    main()
