"""Flows that a leaf of a local fabric sends to its uplinks, for the sampler: how much of each, and over which uplink.

Arguments: seconds between samples, and a file of JSON beside it with the fabric as the leaf sees it (`Seen`).

A table of nftables counts packets and bytes by 5-tuple in a set for each uplink, at the hook `forward`: once the kernel
has chosen, and before the uplink's queue. It ends with this program, or with the leaf's network namespace. What the
kernel says that it would choose (`ip route get`) stands beside what it did.
"""

# ruff: noqa: PTH123 - importing pathlib would take as long as starting the interpreter

from __future__ import annotations

import atexit
import json
import subprocess
import time

MYPY = False
if MYPY:
    from typing import Any, TypedDict

    class Seen(TypedDict):
        """Spine by uplink port, and leaf and its port by host's address; the port is empty behind another leaf."""

        uplinks: dict[str, str]
        hosts: dict[str, list[str]]


TABLE = "orch_paths"
MOST_FLOWS = 65_536  # in a set at once
FORGOTTEN_S = 30  # after which a flow that is silent makes room
PROTOCOLS = {"tcp": 6, "udp": 17}
WIRE_HEADER_BYTES = 14  # Ethernet, which the counter of a routed packet leaves out


def rules(ports: list[str], forgotten_s: int) -> str:
    """Return the table of nftables that counts what leaves by these ports."""
    key = "ipv4_addr . ipv4_addr . inet_proto . inet_service . inet_service"
    flow = "ip saddr . ip daddr . meta l4proto . th sport . th dport"
    lines = ["table ip %s {" % TABLE]
    for place, _ in enumerate(ports):
        lines.append(
            "set out%d { type %s; flags dynamic,timeout; size %d; timeout %ds; counter; }"
            % (place, key, MOST_FLOWS, forgotten_s)
        )
    lines.append("chain out { type filter hook forward priority 0;")
    for place, port in enumerate(ports):
        lines.append('oifname "%s" meta l4proto { tcp, udp } update @out%d { %s }' % (port, place, flow))
    return "\n".join([*lines, "}", "}", ""])


def called(argv: list[str], text: str = "") -> str:
    """Return what a program prints that reads this text; OSError where it fails."""
    done = subprocess.run(argv, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError("%s: %s" % (" ".join(argv), done.stderr.strip()[:200]))
    return done.stdout


class Paths:
    """One dump of all sets a sample: a row for each flow and uplink with new packets."""

    name = "paths"
    columns = (
        *("since_us", "src", "src_port", "dst", "dst_port", "protocol", "spine", "to_leaf", "chosen"),
        *("packets", "bytes"),
    )

    def __init__(self, every_s: float, seen: Seen) -> None:
        self.every_s = every_s
        self.uplinks = list(seen["uplinks"].items())
        self.spines = seen["uplinks"]
        self.hosts = seen["hosts"]
        self.counted: dict[tuple[str, tuple[str, ...]], tuple[int, int]] = {}
        self.chosen: dict[tuple[str, tuple[str, ...]], str] = {}
        self.before = time.monotonic()
        atexit.register(subprocess.run, ["nft", "delete", "table", "ip", TABLE], capture_output=True, check=False)
        forgotten_s = max(FORGOTTEN_S, int(3 * every_s))
        called(["nft", "-f", "-"], rules([port for port, _ in self.uplinks], forgotten_s))

    def rows(self) -> list[list[object]]:
        now = time.monotonic()
        since_us, self.before = round((now - self.before) * 1e6), now
        found = self.dump()
        fresh = [at for at in found if at not in self.chosen]
        if fresh:
            self.chosen.update(zip(fresh, self.choices([flow for _, flow in fresh])))
        rows: list[list[object]] = []
        for at, counted in found.items():
            before = self.counted.get(at, (0, 0))
            if counted[0] < before[0]:  # it was forgotten, and came back
                before = (0, 0)
            packets, octets = counted[0] - before[0], counted[1] - before[1]
            if packets:
                spine, (src, dst, protocol, src_port, dst_port) = at
                to_leaf = self.hosts.get(dst, [""])[0]
                rows.append(
                    [
                        *(since_us, src, src_port, dst, dst_port, PROTOCOLS.get(protocol, protocol), spine, to_leaf),
                        *(self.chosen.get(at, ""), packets, octets + WIRE_HEADER_BYTES * packets),
                    ]
                )
        self.counted = found
        self.chosen = {at: spine for at, spine in self.chosen.items() if at in found}
        return rows

    def dump(self) -> dict[tuple[str, tuple[str, ...]], tuple[int, int]]:
        """Return packets and bytes (layer 3) by spine and flow (addresses, protocol, ports)."""
        found = {}
        for entry in json.loads(called(["nft", "-j", "list", "table", "ip", TABLE]))["nftables"]:
            if "set" in entry:
                spine = self.uplinks[int(entry["set"]["name"][len("out") :])][1]
                for element in entry["set"].get("elem", ()):
                    one = element["elem"]
                    flow = tuple(map(str, one["val"]["concat"]))
                    found[spine, flow] = (one["counter"]["packets"], one["counter"]["bytes"])
        return found

    def choices(self, flows: list[tuple[str, ...]]) -> list[str]:
        """Return the spine to which the kernel says that it sends each of these; empty where it does not say."""
        lines = [
            "route get %s from %s iif %s ipproto %s sport %s dport %s"
            % (dst, src, self.hosts[src][1], protocol, src_port, dst_port)
            for src, dst, protocol, src_port, dst_port in flows
            if self.hosts.get(src, ["", ""])[1]
        ]
        if len(lines) < len(flows):  # of an address that no host of this leaf has
            return [""] * len(flows)
        text = called(["ip", "-j", "-batch", "-"], "".join(line + "\n" for line in lines))
        answers: list[Any] = json.loads("[%s]" % text.replace("]\n[", "],["))
        return [self.spines.get(answer[0].get("dev", ""), "") for answer in answers]


def open_streams(arguments: list[str]) -> list[object]:
    with open(arguments[1], encoding="ascii") as file:
        seen: Seen = json.load(file)
    return [Paths(float(arguments[0]), seen)]
