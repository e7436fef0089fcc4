"""What of a run listens where: the TCP sockets of its processes, on every node, as the kernel tells them."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from orchestrator.parts.topology import KNOWN_PORTS

# What listens on every address of a host, since its framework cannot be told otherwise: the program and its ports.
EVERYWHERE: dict[str, dict[str, range]] = {
    "ddp": {},
    "horovod": {},
    "mpi": {"mpirun": range(20091, 20099), "orted": range(20091, 20099), "python": range(20000, 20091)},
    "mirrored": {"python": range(29600, 29700)},
    "served": {"python": range(29600, 29700)},
}

_LISTENS = "0A"
_ADDRESS_LENGTHS = {8: 4, 32: 16}  # hexadecimal digits -> bytes


@dataclass(frozen=True, order=True)
class Listener:
    """A listening TCP socket of a process of a run; `program` is the process' name, without a version of Python."""

    node: str
    launch: str
    program: str
    address: str
    port: int

    @property
    def everywhere(self) -> bool:
        """Whether it listens on every address of its host."""
        return ipaddress.ip_address(self.address).is_unspecified


def of_run(run: str) -> set[Listener]:
    """Those of all processes that carry the run's tag, the agents among them; needs to be their user, or root."""
    found = set()
    for pid, environment in _environments():
        if environment.get("ORCH_RUN") != run:
            continue
        with suppress(OSError):  # it ended
            for address, port in _listening(pid):
                program = re.sub(r"^python[\d.]+$", "python", Path(f"/proc/{pid}/comm").read_text().strip())
                launch = environment.get("ORCH_LAUNCH", "")
                found.add(Listener(environment.get("ORCH_NODE", ""), launch, program, address, port))
    return found


def as_known(name: str, run: str) -> None:
    """Assert that a run on h1, h2 and h3 of a local testbed listens on the data plane, but for what is known."""
    found = of_run(run)
    everywhere = {one for one in found if one.everywhere}
    known = EVERYWHERE[name]
    strange = {one for one in everywhere if one.port not in known.get(one.program, ())}
    assert not strange, "listens on every address"
    assert {one.program for one in everywhere} == set(known), "what no longer does is no longer to be told"
    assert all(any(first <= one.port <= last for first, last in KNOWN_PORTS) for one in everywhere)
    data = {f"h{i}": f"198.18.0.{i}" for i in (1, 2, 3)}
    assert all(one.address in ("127.0.0.1", data[one.node]) for one in found - everywhere)


def _environments() -> Iterable[tuple[int, dict[str, str]]]:
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (entry / "environ").read_bytes().decode(errors="replace").split("\0")
            yield int(entry.name), dict(word.split("=", 1) for word in words if "=" in word)


def _listening(pid: int) -> Iterable[tuple[str, int]]:
    """Address and port of each listening socket that the process holds, in its own network namespace."""
    mine = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            mine |= set(re.findall(r"socket:\[(\d+)\]", str(entry.readlink())))
    for table in ("tcp", "tcp6"):
        with suppress(FileNotFoundError):  # a kernel without IPv6
            for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                _, local, _, state, *rest = line.split()
                if state == _LISTENS and rest[5] in mine:
                    yield as_address(local)


def as_address(text: str) -> tuple[str, int]:
    """Address and port from how /proc/net/tcp writes them: words of 32 bits in this machine's byte order."""
    digits, port = text.split(":")
    words = [bytes.fromhex(digits[at : at + 8])[::-1] for at in range(0, len(digits), 8)]
    raw = b"".join(words)
    assert len(raw) == _ADDRESS_LENGTHS[len(digits)]
    return str(ipaddress.ip_address(raw)), int(port, 16)
