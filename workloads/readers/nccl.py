"""Read the log that NCCL or RCCL keeps of a rank's connections and rings (NCCL_DEBUG=INFO, NCCL_DEBUG_FILE).

The lines are those of NCCL 2.4 to 2.30, as its sources print them: src/init.cc, src/graph/connect.cc, and net.cc,
net_socket.cc, net_ib, p2p.cc, shm.cc and coll_net.cc of src/transport. RCCL writes the communicator behind them. Of a
connection that is spelled in another way, the line is told as unread, so that no verdict rests on the others alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchestrator.core.paths import safepath
from orchestrator.parts.rows import CONNECTIONS, Columns, LaunchOutput, Unread, gathered
from workloads.readers.nccl_inspector import read_nccl_inspector

FILES = "nccl.*.log"

_LONGEST = 1 << 14  # bytes of a line; NCCL cuts its own far below
_NUMBER = r"\d{1,9}"
_LINE = re.compile(rf":{_NUMBER}:({_NUMBER}) \[-?{_NUMBER}\] NCCL INFO (.*)")  # device -1: none is set in the thread
_BEGUN = re.compile(rf"comm (0x[0-9a-f]+) rank {_NUMBER} n[rR]anks {_NUMBER} .*commId (0x[0-9a-f]+)\b.* - Init START")
_OF_RCCL = re.compile(r" comm (0x[0-9a-f]+) nRanks \d+(?: busId [0-9a-f]+)?$")
_MEMBER = rf"({_NUMBER})(?:\[[0-9a-f]+\])?"  # a rank, and its device: by number, or by PCI address up to 2.18
_CONNECTED = re.compile(
    rf"(?:Channel|Ring) ({_NUMBER})(?:/({_NUMBER}))? : {_MEMBER} -> {_MEMBER}(?: \[(send|receive)\])? via (.+)"
)
_COLLNET = re.compile(rf"Coll(?:Net)? ({_NUMBER})(?:/({_NUMBER}))? : ({_NUMBER}) \[(send|receive)\] via (COLLNET/.+)")
_CONNECTS = re.compile(r"(?:Channel|Ring|Coll|CollNet) \S+ : .*\bvia\b.*")
_CUT = re.compile(r"(?:Channel|Coll|CollNet) \d.*")
_RING = re.compile(rf"Ring ({_NUMBER}) : ({_NUMBER}) -> ({_NUMBER}) -> ({_NUMBER})")
_USING = re.compile(r"NET/(IB|Socket) ?: Using (.+)")
_OF_SOCKET = re.compile(rf"\[({_NUMBER})\]([^\s:]+):\S+<\d+>")
_OF_IB = re.compile(rf"\[({_NUMBER})\]([^\s:/]+:\d+)[\d:]*/\S+")
_MERGED = re.compile(rf"NET/IB : Made virtual device \[({_NUMBER})\] name=(\S+) .*")
_BY_NET = re.compile(
    rf"((?:NET|COLLNET)/.+?)/({_NUMBER})(?:\(({_NUMBER})\))?((?:/GDRDMA)?(?:\(PCI\))?(?:/GDCopy)?(?:/Shared)?)"
)
_WITHIN = re.compile(r"(P2P|SHM)((?:/[A-Za-z][A-Za-z0-9_ ]*)+(?:/\d+\[[0-9a-f]+\](?:/read)?)?)")
_SHARED_MEMORY = "direct shared memory"  # as up to 2.11


@dataclass
class _Log:
    """One process's log as far as it was read: its devices, its communicators, and what each thread sets up now."""

    name: str
    unread: Unread
    devices: dict[tuple[str, int], str] = field(default_factory=dict)
    of_thread: dict[str, str] = field(default_factory=dict)
    known: dict[str, str] = field(default_factory=dict)  # where a communicator lies in memory -> its id
    connections: list[dict[str, Any]] = field(default_factory=list)
    rings: list[dict[str, Any]] = field(default_factory=list)

    def take(self, thread: str, text: str, line: int) -> None:
        """Read a line, of whatever kind it is."""
        if found := _BEGUN.search(text):
            self.of_thread[thread] = found[2]
            self.known[found[1]] = found[2]
            return
        of = self.of_thread.get(thread, "")
        if found := _OF_RCCL.search(text):
            of, text = self.known.get(found[1], ""), text[: found.start()]
        if found := _RING.fullmatch(text):
            channel, previous, member, following = map(int, found.groups())
            ring = {"channel": channel, "previous": previous, "member": member, "next": following}
            self.rings.append({"set_up": of, **ring})
        elif found := _USING.fullmatch(text):
            pattern = _OF_SOCKET if found[1] == "Socket" else _OF_IB
            self.devices |= {(found[1], int(number)): name for number, name in pattern.findall(found[2])}
        elif found := _MERGED.fullmatch(text):
            self.devices["IB", int(found[1])] = found[2]
        elif connection := self._connection(text):
            self.connections.append({"set_up": of, **connection})
        elif _CONNECTS.fullmatch(text):
            self.unread.add(self.name, CONNECTIONS, line=line, text=text)

    def _connection(self, text: str) -> dict[str, Any] | None:
        if found := _CONNECTED.fullmatch(text):
            channel, number, src, dst, direction, via = found.groups()
        elif found := _COLLNET.fullmatch(text):
            channel, number, member, direction, via = found.groups()
            src, dst = (member, "-1") if direction == "send" else ("-1", member)
        else:
            return None
        way = self._way(via)
        return way and {
            "channel": int(channel),
            "connection": int(number or 0),
            "src": int(src),
            "dst": int(dst),
            "direction": direction or "",
            **way,
        }

    def _way(self, via: str) -> dict[str, Any] | None:
        """Transport, detail, and device of a network; None where the line does not end as NCCL ends it."""
        if found := _BY_NET.fullmatch(via):
            transport, index, _, detail = found.groups()
            # Plugins of InfiniBand (IBext_v8) list their devices as NCCL's own does.
            kind = "IB" if transport.startswith("NET/IB") else transport.partition("/")[2]
            device = self.devices.get((kind, int(index)), "")
            return {"transport": transport, "detail": detail.lstrip("/"), "device": device}
        if via == _SHARED_MEMORY:
            return {"transport": "SHM", "detail": via, "device": ""}
        if found := _WITHIN.fullmatch(via):
            return {"transport": found[1], "detail": found[2].lstrip("/"), "device": ""}
        return None

    def communicator(self, set_up: str) -> str:
        """Return the one that a thread set up then; of one that only connects, the only one of the process."""
        ids = set(self.known.values())
        return set_up or (next(iter(ids)) if len(ids) == 1 else "")


def read_nccl(output: LaunchOutput) -> Mapping[str, Columns]:
    """Read the tables `nccl_connections`, `nccl_rings` and `nccl_operations` of a rank: those that it wrote."""
    return {**_read_logs(output), **read_nccl_inspector(output)}


def _read_logs(output: LaunchOutput) -> Mapping[str, Columns]:
    who = {"job": output.job or "", "rank": output.rank if output.rank is not None else -1}
    found: dict[str, list[dict[str, Any]]] = {"nccl_connections": [], "nccl_rings": []}
    for path in sorted(output.folder.glob(FILES)):
        log = _Log(path.name, output.unread)
        for line, thread, text, whole in _lines(path):
            if whole:
                log.take(thread, text, line)
            elif _CUT.fullmatch(text):
                output.unread.add(path.name, CONNECTIONS, line=line, text=text)
        for table, rows in (("nccl_connections", log.connections), ("nccl_rings", log.rings)):
            # Which rail a device is of is for the caller to fill, as the testbed's file says it.
            found[table] += [{**who, "communicator": log.communicator(row["set_up"]), **row} for row in rows]
    return {table: gathered(table, rows) for table, rows in found.items() if rows}


def _lines(path: Path) -> Iterator[tuple[int, str, str, bool]]:
    """Return number, thread and text of each line that is NCCL's, and whether its end is there."""
    with safepath.opened(path) as file:
        for number, raw in enumerate(iter(lambda: file.readline(_LONGEST), b""), start=1):
            if found := _LINE.search(raw.decode("utf-8", "replace")):
                yield number, found[1], found[2].rstrip(), raw.endswith(b"\n")
