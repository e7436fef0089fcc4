"""What of a run listens where: the TCP sockets of its processes, on every node, as the kernel tells them."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

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
