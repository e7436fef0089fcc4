"""Exchange data with a peer and print what a packet socket and the device's own counters saw of it, as JSON.

Arguments: "listen" or "connect", a network device, its address, the peer's address, a port. Both ends send in turn, the
one that connected first, each for a few seconds at most. What is printed has `dropped`, packets that the socket lost,
and for each direction ("in" and "out" of `ways`) what passed between two looks at the counters: `packets` and their
`bytes` as they are captured, `frames` and their `wire` bytes as a device of this MTU cuts them, `counted_packets` and
`counted_bytes` of the counters, and `edge_packets` and `edge_bytes` that may lie on either side of a look.
"""

# ruff: noqa: PTH123 - importing pathlib would take as long as starting the interpreter

from __future__ import annotations

import fcntl
import json
import socket
import struct
import sys
import threading
import time

MYPY = False
if MYPY:
    from typing import Dict, List, Optional, Tuple

ETH_P_ALL, PACKET_OUTGOING, ARPHRD_ETHER, ARPHRD_LOOPBACK = 3, 4, 1, 772
SOL_PACKET, PACKET_STATISTICS, PACKET_AUXDATA, TP_STATUS_VLAN_VALID = 263, 6, 8, 16
SO_RCVBUFFORCE, SIOCGIFMTU = 33, 0x8921
ETHERNET, VLAN = 14, 4  # bytes of headers
HEADERS = 256  # of a packet, which are read
BUFFER = 64 << 20
MOST_BYTES, MOST_S = 16 << 20, 3.0  # that an end sends
QUIET_S = 0.3  # before and after the counters are read
SETTLE_S = 1.5  # for what is on its way, and for drivers that count every second
PATIENCE_S = 10.0  # for the peer


class Packets:
    """The packets of a device in both directions, seen where tcpdump sees them."""

    def __init__(self, device: str) -> None:
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        try:
            self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER)
        except PermissionError:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
        self.socket.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
        self.socket.bind((device, ETH_P_ALL))
        if self.socket.getsockname()[3] not in (ARPHRD_ETHER, ARPHRD_LOOPBACK):
            raise OSError("%s is no device of Ethernet" % device)
        self.socket.settimeout(0.05)
        asked = fcntl.ioctl(self.socket, SIOCGIFMTU, struct.pack("16si12x", device.encode(), 0))
        self.mtu = int(struct.unpack("16si12x", asked)[1])
        self.seen: List[Tuple[float, bool, int, int, int]] = []  # when, out, bytes, frames and their bytes
        self.ended = False
        self.thread = threading.Thread(target=self.take, daemon=True)
        self.thread.start()

    def take(self) -> None:
        while not self.ended:
            try:
                head, ancillary, _, sender = self.socket.recvmsg(HEADERS, 64, socket.MSG_TRUNC)
            except socket.timeout:
                continue
            size, tagged = aux(ancillary)
            frames, wire = on_wire(head, size, self.mtu)
            tag = VLAN if tagged else 0
            out = sender[2] == PACKET_OUTGOING
            self.seen.append((time.monotonic(), out, size + tag, frames, wire + tag * frames))

    def dropped(self) -> int:
        return int(struct.unpack("II", self.socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))[1])


def aux(ancillary: List[Tuple[int, int, bytes]]) -> Tuple[int, bool]:
    """Return the length of a packet and whether a VLAN's tag was taken off it (struct tpacket_auxdata)."""
    for level, kind, data in ancillary:
        if (level, kind) == (SOL_PACKET, PACKET_AUXDATA):
            status, size = struct.unpack_from("II", data)
            return size, bool(status & TP_STATUS_VLAN_VALID)
    raise OSError("the kernel does not say how long packets are")


def on_wire(head: bytes, size: int, mtu: int) -> Tuple[int, int]:
    """Return the number and the bytes of the frames that a packet is, each with all headers, where it is TCP."""
    if size - ETHERNET <= mtu or len(head) < ETHERNET + 60:
        return 1, size
    kind = struct.unpack_from(">H", head, 12)[0]
    if kind == 0x0800 and head[ETHERNET + 9] == 6:
        headers = 4 * (head[ETHERNET] & 15)
    elif kind == 0x86DD and head[ETHERNET + 6] == 6:
        headers = 40
    else:
        return 1, size
    headers += 4 * (head[ETHERNET + headers + 12] >> 4)
    payload = size - ETHERNET - headers
    frames = -(-payload // (mtu - headers))
    return frames, payload + frames * (ETHERNET + headers)


def counters(device: str) -> Dict[str, Tuple[int, int]]:
    """Return packets and bytes by direction, as the device's counters have them in this network namespace."""
    with open("/proc/self/net/dev") as file:
        for line in file:
            name, _, values = line.partition(":")
            if name.strip() == device:
                some = [int(value) for value in values.split()]
                return {"in": (some[1], some[0]), "out": (some[9], some[8])}
    raise OSError("there is no device %s" % device)


def meet(listens: bool, here: str, there: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in here else socket.AF_INET
    until = time.monotonic() + PATIENCE_S
    if listens:
        with socket.socket(family, socket.SOCK_STREAM) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((here, port))
            listener.listen(1)
            listener.settimeout(PATIENCE_S)
            return listener.accept()[0]
    while True:
        peer = socket.socket(family, socket.SOCK_STREAM)
        peer.settimeout(max(0.1, until - time.monotonic()))
        try:
            peer.bind((here, 0))
            peer.connect((there, port))
        except OSError:
            peer.close()
            if time.monotonic() > until:
                raise
            time.sleep(0.2)
        else:
            return peer


def send(peer: socket.socket) -> None:
    block, until, left = bytes(1 << 18), time.monotonic() + MOST_S, MOST_BYTES
    while left > 0 and time.monotonic() < until:
        left -= peer.send(block)
    peer.shutdown(socket.SHUT_WR)


def receive(peer: socket.socket) -> None:
    while peer.recv(1 << 18):
        pass


def exchange(role: str, device: str, here: str, there: str, port: int) -> Dict[str, object]:
    packets = Packets(device)
    time.sleep(QUIET_S)
    began, before = time.monotonic(), counters(device)
    time.sleep(QUIET_S)
    with meet(role == "listen", here, there, port) as peer:
        peer.settimeout(MOST_S + PATIENCE_S)
        for turn in (send, receive) if role == "connect" else (receive, send):
            turn(peer)
    time.sleep(SETTLE_S)
    ended, after = time.monotonic(), counters(device)
    time.sleep(QUIET_S)
    dropped = packets.dropped()
    packets.ended = True
    packets.thread.join()
    ways: Dict[str, object] = {}
    for way in ("in", "out"):
        seen = [one for one in packets.seen if one[1] == (way == "out")]
        within = [one for one in seen if began <= one[0] < ended]
        edges = [one for one in seen if min(abs(one[0] - began), abs(one[0] - ended)) <= QUIET_S]
        ways[way] = {
            "packets": len(within),
            "bytes": sum(one[2] for one in within),
            "frames": sum(one[3] for one in within),
            "wire": sum(one[4] for one in within),
            "counted_packets": after[way][0] - before[way][0],
            "counted_bytes": after[way][1] - before[way][1],
            "edge_packets": sum(one[3] for one in edges),
            "edge_bytes": sum(one[4] for one in edges),
        }
    return {"dropped": dropped, "ways": ways}


def main(words: List[str]) -> Optional[str]:
    role, device, here, there, port = words
    try:
        print(json.dumps(exchange(role, device, here, there, int(port))))
    except OSError as error:
        return str(error.strerror or error)
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
