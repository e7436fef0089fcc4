"""What tshark makes of a capture: its conversations, to hold ours against."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from ipaddress import ip_address

from orchestrator.analysis.capture import trace as tables

# Reassembly counts a datagram's last fragment for all of it; ours counts frames as they were on the wire.
PLAIN = ("-o", "ip.defragment:FALSE", "-o", "ipv6.defragment:FALSE")
_LINE = re.compile(r"^(\S+):(\d+)\s+<->\s+(\S+):(\d+)\s+(\d+) (\S+) (\S+)\s+(\d+) (\S+) (\S+)\s")
_UNITS = {"bytes": 0, "kB": 1, "MB": 2, "GB": 3}
_FIELDS = ("frame.len", "ip.src", "ipv6.src", "ip.dst", "ipv6.dst")


def conversations(path, *options):
    """Of `tshark -z conv,tcp -z conv,udp` with PLAIN: a Counter of conversations for "tcp" and for "udp".

    Each is a sorted pair of (address, port, packets sent, bytes sent); tshark rounds bytes above 10 kB, and so they are
    here: (number, power of 1000).
    """
    argv = ["tshark", "-n", "-q", *PLAIN, *options, "-r", str(path), "-z", "conv,tcp", "-z", "conv,udp"]
    said = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300).stdout
    found = {"tcp": Counter(), "udp": Counter()}
    kind = ""
    for line in said.splitlines():
        if line.endswith(" Conversations"):
            kind = line.split()[0].lower()
        elif match := _LINE.match(line):
            one, port, other, other_port, back, back_bytes, back_unit, forth, forth_bytes, forth_unit = match.groups()
            ends = [
                (str(ip_address(one)), int(port), int(forth), (int(forth_bytes), _UNITS[forth_unit])),
                (str(ip_address(other)), int(other_port), int(back), (int(back_bytes), _UNITS[back_unit])),
            ]
            found[kind][tuple(sorted(ends))] += 1
    return found


def exact(path, kind):
    """From tshark's fields of every frame: a Counter of conversations as above, with bytes in full."""
    fields = (f"{kind}.stream", *_FIELDS, f"{kind}.srcport", f"{kind}.dstport")
    argv = ["tshark", "-n", *PLAIN, "-r", str(path), "-Y", kind, "-T", "fields", "-E", "occurrence=f"]
    argv += [word for field in fields for word in ("-e", field)]
    said = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300).stdout
    streams = {}
    for line in said.splitlines():
        stream, size, v4_src, v6_src, v4_dst, v6_dst, sport, dport = line.split("\t")
        src, dst = str(ip_address(v4_src or v6_src)), str(ip_address(v4_dst or v6_dst))
        ends = streams.setdefault(stream, {})
        one, other = (src, int(sport)), (dst, int(dport))
        packets, octets = ends.get((one, other), (0, 0))
        ends[one, other] = packets + 1, octets + int(size)
        ends.setdefault((other, one), (0, 0))
    return Counter(tuple(sorted((*one, *sums) for (one, _), sums in ends.items())) for ends in streams.values())


def ours(trace, kind):
    """The same of a Trace of one point, with bytes in full.

    tshark takes what several interfaces and networks of tunnels have in common for one conversation.
    """
    flows, found = trace.flows, {}
    apart = len(set(zip(flows.interface.tolist(), flows.tunnel.tolist(), strict=True))) == 1
    for row in range(len(flows)):
        if tables.protocol_name(int(flows.protocol[row])) != kind or not (flows.src_port[row] or flows.dst_port[row]):
            continue
        one = (trace.hosts[flows.src[row]], int(flows.src_port[row]))
        other = (trace.hosts[flows.dst[row]], int(flows.dst_port[row]))
        ends = found.setdefault(int(flows.conversation[row]) if apart else tuple(sorted((one, other))), {})
        packets, octets = ends.get((one, other), (0, 0))
        ends[one, other] = (packets + int(flows.packets[row]), octets + int(flows.wire_bytes[row]))
        ends.setdefault((other, one), (0, 0))
    return Counter(tuple(sorted((*one, *sums) for (one, _), sums in ends.items())) for ends in found.values())


def rounded(counted):
    """Bytes as `-z conv` tells them."""
    return Counter(
        {
            tuple((address, port, packets, _said(octets)) for address, port, packets, octets in pair): times
            for pair, times in counted.items()
        }
    )


def _said(octets):
    power = next(power for power in range(4) if octets // 1000**power < 10_000)
    return octets // 1000**power, power


def innermost(path, *options):
    """Packets and bytes of each direction by its innermost IP addresses and ports: a Counter of each, by kind.

    By tshark's fields of every frame, of which each header has one: those of the last ones.
    """
    fields = ("frame.len", "frame.protocols", *_FIELDS[1:], "tcp.srcport", "tcp.dstport", "udp.srcport", "udp.dstport")
    argv = ["tshark", "-n", *PLAIN, *options, "-r", str(path), "-T", "fields", "-E", "occurrence=a"]
    argv += [word for field in fields for word in ("-e", field)]
    said = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300).stdout
    packets, octets = Counter(), Counter()
    for line in said.splitlines():
        size, protocols, *ends = line.split("\t")
        layers = protocols.split(":")
        network = next((one for one in reversed(layers) if one in ("ip", "ipv6")), None)
        kind = next((one for one in reversed(layers) if one in ("tcp", "udp")), None)
        if network is None or kind is None:
            continue
        v4_src, v6_src, v4_dst, v6_dst, tcp_src, tcp_dst, udp_src, udp_dst = ends
        src, dst = (v4_src, v4_dst) if network == "ip" else (v6_src, v6_dst)
        ports = (tcp_src, tcp_dst) if kind == "tcp" else (udp_src, udp_dst)
        key = (
            kind,
            *(str(ip_address(one.split(",")[-1])) for one in (src, dst)),
            *(int(one.split(",")[-1]) for one in ports),
        )
        packets[key] += 1
        octets[key] += int(size)
    return packets, octets


def ours_innermost(trace):
    """The same of a Trace of one point."""
    flows, packets, octets = trace.flows, Counter(), Counter()
    for row in range(len(flows)):
        kind = tables.protocol_name(int(flows.protocol[row]))
        if kind in ("tcp", "udp") and (flows.src_port[row] or flows.dst_port[row]):
            ends = (trace.hosts[flows.src[row]], trace.hosts[flows.dst[row]])
            key = (kind, *ends, int(flows.src_port[row]), int(flows.dst_port[row]))
            packets[key] += int(flows.packets[row])
            octets[key] += int(flows.wire_bytes[row])
    return packets, octets
