"""Hosts that are reached by SSH alone and stay when a run ends, as real ones do: those of an `orch testbed`."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.helpers.orch_runs import light, start, wait_for

PATIENCE_S = 120.0
LINK = "250mbit"
SSHD_CONFIG = "/run/orch-sshd/config"  # of each host, in a file system of its own


class Rack:
    """The hosts h1, h2, ... while they are up."""

    def __init__(self, config: Path, folder: Path, names: Sequence[str], holder: int) -> None:
        self.config = config  # of ssh, with a key and the hosts' keys beside it
        self.folder = folder
        self.names = names
        self._holder = holder

    @cached_property
    def pids(self) -> dict[str, int]:
        """PID 1 of each host, as seen from here: its sshd."""
        return _first_processes(self._holder, self.names)

    @property
    def work(self) -> str:
        """Where runs make their folders on each host."""
        return f"/run/orch/{self.folder.name}"

    def inventory(self, **defaults: Any) -> dict[str, Any]:
        common = {"config": str(self.config), "python": sys.executable, "work": self.work}
        return {
            "link": LINK,
            "defaults": {**common, **defaults},
            "hosts": {
                host: {"ssh": host, "data": {"address": f"198.18.0.{number}/24", "device": "eth0"}}
                for number, host in enumerate(self.names, 1)
            },
        }

    def experiment(self, **changes: Any) -> dict[str, Any]:
        """A light run on these hosts, which changes a route and a queue of the first."""
        return on_inventory(self.inventory(), **changes)

    def on(self, host: str, *argv: str) -> str:
        """What a command says that runs on a host, by SSH."""
        return _said("ssh", "-F", self.config, host, *argv)

    def inside(self, host: str, *argv: object) -> str:
        """The same without SSH, so that it may be broken."""
        return _said(*self._entered(host), "-p", *argv)

    def _entered(self, host: str) -> list[str]:
        return ["nsenter", "-t", str(self.pids[host]), *_own_user(), "-m", "-n", "-u", "-i"]

    def files(self, host: str) -> Path:
        """A host's files, as seen from here."""
        return Path(f"/proc/{self.pids[host]}/root")

    def work_of(self, host: str) -> Path:
        """A host's folder of runs, likewise."""
        return self.files(host) / self.work.lstrip("/")

    def below(self, host: str) -> set[int]:
        """Every process of a host but its first, as seen from here."""
        return {pid for pid in _in_namespace_of(self.pids[host]) if pid != self.pids[host]}

    @contextmanager
    def refusing_logins(self, host: str) -> Iterator[None]:
        """A host that takes no new connection for SSH, while those that there are stay."""
        with self.filtering(host, "tcp dport 22 tcp flags & (syn | ack) == syn reject with tcp reset"):
            yield

    @contextmanager
    def cut(self, host: str) -> Iterator[None]:
        """A host whose control network carries nothing: packets of SSH vanish, both ways."""
        with self.filtering(host, "tcp dport 22 drop", "tcp sport 22 drop"):
            yield

    @contextmanager
    def filtering(self, host: str, *rules: str) -> Iterator[None]:
        """A host that does so with what its control network brings."""
        chain = "chain in { type filter hook input priority 0; " + "; ".join(rules) + "; }"
        self.inside(host, "nft", f"table inet broken {{ {chain}; }}")
        try:
            yield
        finally:
            self.inside(host, "nft", "delete table inet broken")

    @contextmanager
    def slowed(self, host: str, rate: str) -> Iterator[None]:
        """A host whose control network carries so much at most."""
        self.inside(host, "ip", "link", "set", "lo", "mtu", 1500)
        self.inside(host, *f"tc qdisc add dev lo root tbf rate {rate} burst 10k latency 200ms".split())
        try:
            yield
        finally:
            self.inside(host, *["tc", "qdisc", "delete", "dev", "lo", "root"])
            self.inside(host, "ip", "link", "set", "lo", "mtu", 65536)

    @contextmanager
    def mounted(self, host: str, path: str, kind: str, options: str) -> Iterator[None]:
        """A host that has a file system of its own at a folder, which is made where there is none."""
        made = not (self.files(host) / path.lstrip("/")).exists()
        self.inside(host, "mkdir", "-p", path)
        self.inside(host, "mount", "--no-mtab", "-t", kind, "-o", options, "none", path)
        try:
            yield
        finally:
            self.inside(host, "umount", "--no-mtab", "--lazy", path)
            if made:
                self.inside(host, "rmdir", path)

    @contextmanager
    def bound(self, host: str, file: Path, path: str) -> Iterator[None]:
        """A host that finds another file at a path."""
        self.inside(host, "mount", "--no-mtab", "--bind", file, path)
        try:
            yield
        finally:
            self.inside(host, "umount", "--no-mtab", "--lazy", path)

    @contextmanager
    def replaced(self, host: str, program: str, script: str) -> Iterator[None]:
        """A host on which a program does something else."""
        found = shutil.which(program, path="/usr/sbin:/usr/bin:/sbin:/bin")
        assert found, f"{program} is not installed"
        other = self.folder / f"other-{program}"
        other.write_text(f"#!/bin/sh\n{script}\n")
        other.chmod(0o755)
        with self.bound(host, other, str(Path(found).resolve())):
            yield

    @contextmanager
    def hidden(self, host: str, program: str) -> Iterator[None]:
        """A host that has not got a program."""
        with self.replaced(host, program, "exit 127"):
            (self.folder / f"other-{program}").chmod(0o644)
            yield

    @contextmanager
    def running(self, host: str, *argv: object) -> Iterator[None]:
        """A host on which a program runs, that has printed a line."""
        process = subprocess.Popen([*self._entered(host), *map(str, argv)], stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            assert process.stdout.readline()
            yield
        finally:
            process.kill()
            process.communicate()

    def sshd_with(self, host: str, *lines: str) -> None:
        """Have a host's sshd go on with more lines in its configuration."""
        config = self.files(host) / SSHD_CONFIG.lstrip("/")
        config.write_text("\n".join([*lines, config.read_text()]))
        before = self._listening(host)
        os.kill(self.pids[host], signal.SIGHUP)
        wait_for(lambda: self._listening(host) not in ("", before), PATIENCE_S, f"sshd of {host} with new sockets")

    def _listening(self, host: str) -> str:
        """The sockets of a host's sshd, by their inodes."""
        return self.inside(host, "ss", "-Htlne", "sport", "=", ":22")


def on_inventory(inventory: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return light(
        **{
            "testbed": {"inventory": inventory},
            "conditions": [
                {"congestion-control": "cubic"},
                {"rate": {"where": "nic", "host": "h1", "rate": "120mbit"}},
            ],
            "traffic": [{"iperf": {"from": "h1", "to": "h3", "load": "30mbit", "streams": 2}}],
            "measure": {"warmup": 1, "iterations": 5, "at_most": "30s"},
            "validity": {"min_iterations": 5},
            **changes,
        }
    )


@contextmanager
def rack(folder: Path, hosts: int = 3, **more: Any) -> Iterator[Rack]:
    """Bring hosts up; they are gone with the block."""
    holding = start("testbed", "--hosts", hosts, "--link", LINK, **more)
    try:
        config = None
        while config is None:
            line = holding.stdout.readline()
            assert line, holding.stderr.read()
            if match := re.search(r"ssh -F (\S+) h1", line):
                config = Path(match[1])
        wait_for(lambda: holding.stdout.readline().startswith("up"), PATIENCE_S, "the testbed")
        yield Rack(config, folder, [f"h{number}" for number in range(1, hosts + 1)], holding.pid)
    finally:
        holding.send_signal(signal.SIGINT)
        holding.communicate(timeout=PATIENCE_S)


def _said(*argv: object) -> str:
    done = subprocess.run([*map(str, argv)], capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 0, f"{' '.join(map(str, argv))}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def _own_user() -> list[str]:
    """Without root the hosts are in a user namespace of ours."""
    return [] if os.geteuid() == 0 else ["-U", "--preserve-credentials"]


def _first_processes(holder: int, names: Sequence[str]) -> dict[str, int]:
    """PID 1 of each host, by name."""
    firsts = {}
    for pid in descendants(holder):
        status = Path(f"/proc/{pid}/status").read_text()
        if re.search(r"^Name:\s+sshd$", status, re.MULTILINE) and re.search(r"^NSpid:.*\s1$", status, re.MULTILINE):
            firsts[_said("nsenter", "-t", pid, *_own_user(), "-u", "hostname").strip()] = pid
    return {name: firsts[name] for name in names}


def descendants(root: int) -> set[int]:
    """Every process below one."""
    found, parents = {root}, {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    while grown := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= grown
    return found - {root}


def _in_namespace_of(pid: int) -> Iterator[int]:
    namespace = Path(f"/proc/{pid}/ns/pid").readlink()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "ns/pid").readlink() == namespace:
                yield int(entry.name)
        except OSError:
            continue
