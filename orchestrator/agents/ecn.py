"""Marks packets at the queue of a network device, in the kernel, and writes what it marked to ecn.json.

Run as `python -I -S -B ecn.py -i DEVICE (-k BYTES | -t SECONDS) [-v SHARE]`, with bpf.py, kernel_types.py and
ecn.bpf.json (made of ecn.c) beside it. The queue is that of a token bucket at the device's root: `-k` and `-t` say how
much waits in it, or for how long that takes at the bucket's rate, before packets are marked. With `-v` it is a virtual
queue that drains at this share of the rate, and has room for as much. "marking at DEVICE" on standard output says that
it marks; SIGINT or SIGTERM ends it, with 0.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import struct
import subprocess
import sys

MYPY = False
if MYPY or __package__:
    import orchestrator.agents.agent.bpf as bpf  # noqa: PLR0402 - tests/unit/agents/test_old_python.py asks for modules
    import orchestrator.agents.kernel_types as kernel_types  # noqa: PLR0402
else:  # on a host, where they lie beside this file
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - -I leaves it out
    import bpf
    import kernel_types

FILE = "ecn.json"
FIELDS = ("sk_buff.dev", "net_device.qdisc", "Qdisc.qstats.backlog")
FUNCTION = "bpf_cast_to_kern_ctx"
LEAST_BYTES = 1514  # a full frame: a shorter queue cannot be told from none
COST_UNIT = 65536  # of a byte in the virtual queue: 2^-16 ns
COUNTS = struct.Struct("=6Q")
ENDING = (signal.SIGTERM, signal.SIGINT)


def qdiscs(device: str) -> str:
    """Return what `tc -j -r qdisc show` tells of a device; OSError where it fails."""
    argv = ["tc", "-j", "-r", "qdisc", "show", "dev", device]
    done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=30)
    if done.returncode:
        raise OSError(errno.EIO, "tc: %s" % done.stderr.strip()[:200])
    return done.stdout


def token_bucket(told: str) -> tuple[float, int]:
    """Return rate (bytes/s) and length (bytes) of the bucket at a device's root, from what `qdiscs` returned.

    ValueError where the root is another one, or tc tells something else.
    """
    found = json.loads(told)
    roots = [qdisc for qdisc in found if qdisc.get("root")]
    kind = roots[0]["kind"] if roots else "none"
    if kind != "tbf":
        raise ValueError("its root qdisc is %s: packets wait in a token bucket alone (tbf)" % kind)
    options = roots[0]["options"]
    return float(options["rate"]), int(options["limit"])


class Marker:
    """The program at a device, as long as this process lives."""

    def __init__(self, device: str, threshold: int, virtual_rate: float, room: int) -> None:
        """Attach it; `virtual_rate` (bytes/s) is that of a virtual queue, 0 where there is none."""
        types = kernel_types.running()
        symbols = {path.replace(".", "_"): types.field(path) for path in FIELDS}
        symbols[FUNCTION] = types.function(FUNCTION)
        symbols["threshold"], symbols["room"] = threshold, room
        symbols["byte_cost"] = round(COST_UNIT * 1e9 / virtual_rate) if virtual_rate else 0
        folder = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
        shapes, programs = bpf.read_object(os.path.join(folder, "ecn.bpf.json"))  # noqa: PTH118
        self.maps = {name: bpf.create_map(name, shape) for name, shape in shapes.items()}
        program = bpf.load_program("mark", programs["egress"], self.maps, symbols)
        self.link = bpf.attach(program, socket.if_nametoindex(device), bpf.TCX_EGRESS)

    def counts(self) -> dict[str, int | None]:
        """Return what was counted so far; bytes in the queue are None where no packet tells."""
        size = COUNTS.size
        found = bpf.lookup(self.maps["counted"], struct.pack("=I", 0), size * bpf.processors())
        parts = [COUNTS.unpack_from(found, at) for at in range(0, len(found), size)]
        packets, capable, marked, unmarkable = (sum(part[place] for part in parts) for place in range(4))
        least = [part[4] for part in parts if part[2]]
        return {
            "packets": packets,
            "capable": capable,
            "marked": marked,
            "unmarkable": unmarkable,
            "least_marked_bytes": min(least) if least else None,
            "most_passed_bytes": max(part[5] for part in parts) if capable > marked else None,
        }


def threshold_of(options: dict[str, str], rate: float, limit: int) -> int:
    """Return the threshold in bytes; ValueError where a queue cannot pass it, or is always beyond it."""
    threshold = int(options["-k"]) if "-k" in options else round(float(options["-t"]) * rate)
    if not LEAST_BYTES <= threshold < limit:
        message = "marks would begin at %d bytes: the threshold has to be %d, a packet, or more, and less than the %d"
        raise ValueError((message + " that the queue holds") % (threshold, LEAST_BYTES, limit))
    return threshold


def main(argv: list[str]) -> int:
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    options = dict(zip(argv[1::2], argv[2::2]))
    device = options["-i"]
    try:
        rate, limit = token_bucket(qdiscs(device))
        share = float(options.get("-v", "0"))
        threshold = threshold_of(options, rate * (share or 1.0), limit)
        marker = Marker(device, threshold, rate * share, limit)
    except OSError as error:
        print("ecn: %s: %s" % (device, error.strerror), file=sys.stderr, flush=True)
        return 1
    except (ValueError, LookupError, TypeError, subprocess.SubprocessError) as error:
        print("ecn: %s: %s" % (device, error), file=sys.stderr, flush=True)
        return 1
    print("marking at %s" % device, flush=True)
    signal.sigwait(ENDING)
    os.close(marker.link)
    facts = {"device": device, "threshold_bytes": threshold, "rate_bps": 8 * rate, **marker.counts()}
    with open(FILE, "w", encoding="ascii") as file:  # noqa: PTH123 - pathlib would take as long as all of this
        json.dump(facts, file)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
