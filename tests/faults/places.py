"""Where a row is carried out: a local testbed that a run brings up by itself, or hosts that stay when it ends."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from tests.faults.checks import State
from tests.helpers import sudo_hosts
from tests.helpers.orch_runs import light
from tests.helpers.rack import Rack, rack
from tests.helpers.sudo_hosts import SudoHosts

LONG = {"warmup": 1, "at_most": "120s", "stall_timeout": "4s"}
READ: Mapping[str, tuple[str, ...]] = {
    "qdiscs": ("tc", "qdisc", "show"),
    "nft": ("nft", "-s", "list", "ruleset"),
    "routes": ("ip", "-4", "route", "show", "table", "all"),
    "rules": ("ip", "rule", "show"),
    "links": ("ip", "-o", "link", "show"),
    "addresses": ("ip", "-o", "-4", "address", "show"),
    "sysctls": ("sysctl", "-e", "-a", "--pattern", r"^net\.(ipv4|core)\."),
}
LOG = "training-rank0/iterations.jsonl"
OFFLOADS = ("ethtool", "-k", "eth0")


class Place(Protocol):
    """A kind of testbed."""

    def experiment(self, **changes: Any) -> dict[str, Any]:
        """A light run here, endless unless changed."""

    def state(self) -> State:
        """What can be read of its machines, but for processes."""

    def logs(self, results: Path) -> Iterable[Path]:
        """The iterations that rank 0 of the run whose results these are to be has logged so far."""

    def processes(self) -> set[int]:
        """PIDs of all that runs on its hosts without a run's doing; none where hosts come and go with the run."""


class Local:
    """Containers that a run brings up, and that are gone with it; what stays is this machine."""

    def experiment(self, **changes: Any) -> dict[str, Any]:
        traffic = [{"iperf": {"from": "h1", "to": "h3", "load": "2gbit", "streams": 2}}]
        return light(**{"measure": LONG, "traffic": traffic, **changes})

    def state(self) -> State:
        return {"this machine": {kind: _said(*argv) for kind, argv in READ.items()}}

    def logs(self, results: Path) -> Iterable[Path]:
        return results.glob(f"*/*/hosts/*/**/{LOG}")

    def processes(self) -> set[int]:
        return set()


class Hosts:
    """Hosts of an inventory."""

    def __init__(self, up: Rack) -> None:
        self.rack = up

    def experiment(self, **changes: Any) -> dict[str, Any]:
        return self.rack.experiment(**{"measure": LONG, **changes})

    def state(self) -> State:
        return {host: self._state(host) for host in self.rack.names}

    def _state(self, host: str) -> dict[str, str]:
        read = {**READ, "offloads": OFFLOADS}
        own = self.rack.files(host)
        return {
            **{kind: self.rack.inside(host, *argv) for kind, argv in read.items()},
            "files": "\n".join(tree(own / "run")),
            "shared memory": "\n".join(tree(own / "dev/shm")),
        }

    def logs(self, results: Path) -> Iterable[Path]:
        return [log for host in self.rack.names for log in self.rack.work_of(host).glob(f"*/{LOG}")]

    def processes(self) -> set[int]:
        return {pid for host in self.rack.names for pid in self.rack.below(host)}


class Users:
    """Hosts with real sudo, on which we are an ordinary user; rows say what sudo grants."""

    def __init__(self, up: SudoHosts, folder: Path) -> None:
        self.hosts = up
        self.folder = folder
        self.sudo: object = True

    @property
    def work(self) -> Path:
        return Path(f"/var/tmp/orch-{self.hosts.uid}")

    def experiment(self, **changes: Any) -> dict[str, Any]:
        return self.hosts.experiment(self.folder, self.sudo, **{"measure": LONG, **changes})

    def state(self) -> State:
        read = {**READ, "offloads": OFFLOADS}
        found = {name: {kind: self.hosts.on(name, *argv) for kind, argv in read.items()} for name in sudo_hosts.NAMES}
        return {**found, "this machine": {"files": "\n".join([str(self.work)] if self.work.exists() else [])}}

    def logs(self, results: Path) -> Iterable[Path]:
        return self.work.glob(f"*/{LOG}")

    def processes(self) -> set[int]:
        return {pid for pid, _ in sudo_hosts.processes_of(self.hosts.uid)}


def tree(folder: Path) -> list[str]:
    """Every entry below a folder, with its mode."""
    return sorted(f"{path.lstat().st_mode:o} {path.relative_to(folder)}" for path in folder.rglob("*"))


@contextmanager
def hosts(folder: Path, *, count: int, env: Mapping[str, str]) -> Iterator[Hosts]:
    with rack(folder, count, env=env) as up:
        yield Hosts(up)


@contextmanager
def users(folder: Path) -> Iterator[Users]:
    with sudo_hosts.up() as up:
        yield Users(up, folder)


def _said(*argv: str) -> str:
    """What a command says, but for how long leases last; nothing where this user may not ask."""
    told = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60).stdout
    return re.sub(r"(valid|preferred)_lft \S+", "", told)
