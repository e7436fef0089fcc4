"""Counts the flows of a network device in bins of time, in the kernel, and writes what it counted to meter.bin.

Run as `python -I -S -B meter.py -i DEVICE -w WIDTH_NS -e EVERY_S`, with bpf.py and meter.bpf.json (made of meter.c)
beside it. "listening on DEVICE" on standard error says that it counts; SIGINT or SIGTERM ends it, with 0.

meter.bin begins with HEAD: magic, bytes of a record, width of a bin in nanoseconds. Then come blocks, one every
`EVERY_S` seconds: BLOCK, and so many records as they lie in the kernel's ring: RECORD_HEAD bytes of no meaning here,
and struct entry of meter.c. A flow and bin may have several. A block has the wall clock in nanoseconds, and what was
lost so far since the ring was full; the last one ends with ENDED. What processors have not put into the ring yet comes
at the end.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import socket
import struct
import sys
import time

MYPY = False
if MYPY or __package__:
    import orchestrator.agents.agent.bpf as bpf  # noqa: PLR0402 - tests/unit/agents/test_old_python.py asks for modules
else:  # on a host, where it lies beside this file
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - -I leaves it out
    import bpf

FILE = "meter.bin"
MAGIC = b"orch-meter-2\0\0\0\0"
HEAD = struct.Struct("<16sQQ")
BLOCK = struct.Struct("<4sIQQQ")  # kind, records, wall clock (ns), packets and bytes lost so far
COUNTED, ENDED = b"bins", b"end\0"
SETTINGS, LOST = struct.Struct("=QQ"), struct.Struct("=QQ")
FIRST = struct.pack("=I", 0)
COUNTED_PACKETS = slice(56, 64)  # of a record: entry.sums.packets
ENDING = (signal.SIGTERM, signal.SIGINT)


SIOCGIFHWADDR = 0x8927
ETHERNET = (1, 772)  # ARPHRD_ETHER and ARPHRD_LOOPBACK: frames begin with Ethernet's header


def hardware(device: str) -> int:
    """Return the type of a device's hardware (ARPHRD_... of linux/if_arp.h)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        reply = fcntl.ioctl(any_socket, SIOCGIFHWADDR, struct.pack("=16s24x", device.encode()[:15]))
    return int(struct.unpack_from("=H", reply, 16)[0])


class Meter:
    """The program at both directions of a device, as long as this process lives."""

    def __init__(self, device: str, width_ns: int) -> None:
        self.width_ns = width_ns
        if hardware(device) not in ETHERNET:
            raise OSError(errno.EPFNOSUPPORT, "its frames are not Ethernet's")
        folder = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
        shapes, programs = bpf.read_object(os.path.join(folder, "meter.bpf.json"))  # noqa: PTH118
        self.maps = {name: bpf.create_map(name, shape) for name, shape in shapes.items()}
        self.recent = shapes["recent"]
        self.ring = bpf.Ring(self.maps["counted"], shapes["counted"].entries, self.recent.value_bytes)
        self.follow_clock()
        index = socket.if_nametoindex(device)
        self.links = []
        for name, where in (("ingress", bpf.TCX_INGRESS), ("egress", bpf.TCX_EGRESS)):
            program = bpf.load_program(name, programs[name], self.maps, {})
            self.links.append(bpf.attach(program, index, where))

    def follow_clock(self) -> None:
        """Tell the program what the wall clock is ahead of the kernel's own."""
        before = time.monotonic_ns()
        wall = time.time_ns()
        ahead = wall - (before + time.monotonic_ns()) // 2
        bpf.update(self.maps["settings"], FIRST, SETTINGS.pack(ahead % (1 << 64), self.width_ns))

    def detach(self) -> None:
        """Stop counting; what was counted stays to be taken."""
        for link in self.links:
            os.close(link)
        self.links = []

    def take(self, file: int) -> None:
        """Write a block of what is in the kernel's ring, if anything is."""
        self.follow_clock()
        records = self.ring.ready()
        if records:
            write(file, self.block(COUNTED, len(records) // self.ring.record_bytes))
            write(file, records)
            self.ring.release(len(records))

    def left(self) -> bytes:
        """Return a block of what processors have not put into the ring, once the program is detached."""
        records = []
        step = self.recent.value_bytes
        for place in range(self.recent.entries):
            found = bpf.lookup(self.maps["recent"], struct.pack("=I", place), step * bpf.processors())
            records += [bytes(bpf.RECORD_HEAD) + found[at : at + step] for at in range(0, len(found), step)]
        counted = [record for record in records if any(record[COUNTED_PACKETS])]
        return self.block(COUNTED, len(counted)) + b"".join(counted)

    def block(self, kind: bytes, count: int) -> bytes:
        """Return the head of a block of so many records."""
        lost = LOST.unpack(bpf.lookup(self.maps["lost"], FIRST, LOST.size))
        return BLOCK.pack(kind, count, time.time_ns(), *lost)


def record(meter: Meter, file: int, every_s: float) -> None:
    """Write blocks until told to end."""
    due = time.monotonic() + every_s
    while signal.sigtimedwait(ENDING, max(0.0, due - time.monotonic())) is None:
        due = max(due + every_s, time.monotonic())
        meter.take(file)
    meter.detach()
    meter.take(file)
    write(file, meter.left() + meter.block(ENDED, 0))


def write(file: int, data: bytes | memoryview) -> None:
    while data:
        data = data[os.write(file, data) :]


def main(argv: list[str]) -> int:
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    options = dict(zip(argv[1::2], argv[2::2]))
    device = options["-i"]
    try:
        meter = Meter(device, int(options["-w"]))
        file = os.open(FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        write(file, HEAD.pack(MAGIC, meter.ring.record_bytes, meter.width_ns))
        print("listening on %s" % device, file=sys.stderr, flush=True)
        record(meter, file, float(options["-e"]))
    except OSError as error:
        print("meter: %s: %s" % (device, error.strerror), file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
