"""Counts the flows of a network device in bins of time, in the kernel, and writes what it counted to meter.bin.

Run as `python -I -S -B meter.py -i DEVICE -w WIDTH_NS -e EVERY_S`, with bpf.py and meter.bpf.json (made of meter.c)
beside it. "listening on DEVICE" on standard error says that it counts; SIGINT or SIGTERM ends it, with 0.

meter.bin begins with HEAD: magic, bytes of a key and of a value, width of a bin in nanoseconds. Then come blocks, one
every `EVERY_S` seconds: BLOCK, the keys of so many entries, their values (struct flow_bin and counts of meter.c). A
block has the wall clock in nanoseconds, and what was lost so far since a table was full; the last one ends with ENDED.
The kernel's two tables take turns: one is read once no processor uses it any more, so that nothing is read half. What
processors have not handed on to a table yet comes at the end.
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
MAGIC = b"orch-meter-1\0\0\0\0"
HEAD = struct.Struct("<16sIIQ")
BLOCK = struct.Struct("<4sIQQQ")  # kind, entries, wall clock (ns), packets and bytes lost so far
COUNTED, ENDED = b"bins", b"end\0"
SETTINGS, LOST = struct.Struct("=QQ"), struct.Struct("=QQ")
FIRST = struct.pack("=I", 0)
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
        self.shape = shapes["counted"]
        self.drain = bpf.Drain(self.shape)
        self.tables = [bpf.create_map("counted", self.shape) for _ in range(2)]
        self.switch = bpf.create_map("tables", shapes["tables"], inner=self.tables[0])
        self.maps = {"tables": self.switch}
        self.recent = shapes["recent"]
        for name in ("settings", "lost", "recent"):
            self.maps[name] = bpf.create_map(name, shapes[name])
        bpf.update(self.switch, FIRST, struct.pack("=I", self.tables[0]))
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

    def take(self) -> bytes:
        """Return the blocks of what was counted since the last call, and let the program fill the other table."""
        self.follow_clock()
        self.tables.reverse()
        bpf.update(self.switch, FIRST, struct.pack("=I", self.tables[0]))
        parts = []
        for count, keys, values in self.drain.take(self.tables[1]):
            parts += [self.block(COUNTED, count), keys, values] if count else []
        return b"".join(parts)

    def left(self) -> bytes:
        """Return a block of what processors kept that is in no table, once the program is detached."""
        keys, values = [], []
        step = self.recent.value_bytes
        for place in range(self.recent.entries):
            found = bpf.lookup(self.maps["recent"], struct.pack("=I", place), step * bpf.processors())
            for at in range(0, len(found), step):
                entry = found[at : at + step]
                if any(entry[self.shape.key_bytes : self.shape.key_bytes + 8]):  # its packets
                    keys.append(entry[: self.shape.key_bytes])
                    values.append(entry[self.shape.key_bytes :])
        return self.block(COUNTED, len(keys)) + b"".join(keys + values)

    def block(self, kind: bytes, count: int) -> bytes:
        lost = LOST.unpack(bpf.lookup(self.maps["lost"], FIRST, LOST.size))
        return BLOCK.pack(kind, count, time.time_ns(), *lost)


def record(meter: Meter, file: int, every_s: float) -> None:
    """Write blocks until told to end."""
    due = time.monotonic() + every_s
    while signal.sigtimedwait(ENDING, max(0.0, due - time.monotonic())) is None:
        due = max(due + every_s, time.monotonic())
        write(file, meter.take())
    meter.detach()
    write(file, meter.take() + meter.take() + meter.left() + meter.block(ENDED, 0))


def write(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]


def main(argv: list[str]) -> int:
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    options = dict(zip(argv[1::2], argv[2::2]))
    device = options["-i"]
    try:
        meter = Meter(device, int(options["-w"]))
        file = os.open(FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        write(file, HEAD.pack(MAGIC, meter.shape.key_bytes, meter.shape.value_bytes, meter.width_ns))
        print("listening on %s" % device, file=sys.stderr, flush=True)
        record(meter, file, float(options["-e"]))
    except OSError as error:
        print("meter: %s: %s" % (device, error.strerror), file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
