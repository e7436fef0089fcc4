"""Many hosts that are reached by SSH alone, with a gate before them, and the machine that measures as one of them.

All are hosts of one local testbed. What is started on `ctl` has no way to the others but its link, whose rate can be
limited; `gate` has besides an sshd with OpenSSH's own limits, through which the way to the hosts can lead.
"""

from __future__ import annotations

import math
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from orchestrator.core.deadline import Deadline
from orchestrator.testbed.local.netns import LocalSpec, NetnsTestbed
from orchestrator.testbed.local.netns_needs import find_program, search_path
from tests.helpers.processes import ended

CONTROLLER, GATE = "ctl", "gate"
GATE_PORT = 2222
DEFAULT_STARTUPS = "10:30:100"  # of OpenSSH, as its MaxSessions is 10
LINK_BPS = 10e9
UP_WITHIN_S = 120.0
ROOT = Path(__file__).parents[2]
LIGHT_RANK = ROOT / "tests/helpers/light_rank.py"


def light(hosts: Sequence[str], *, iterations: int = 5) -> dict[str, Any]:
    """A run of which next to nothing is the training: bytes go around a ring of all hosts."""
    ring = ["{python}", "-S", LIGHT_RANK.name, "{rank}", "{hosts}", "{port}", "1000", "0.2"]
    return {
        "name": "light",
        "testbed": {"inventory": "inventory.yaml"},
        "conditions": [{"congestion-control": "reno"}],
        "workload": {
            "command": {
                "argv": ring,
                "files": [str(LIGHT_RANK)],
                "iterations": {"pattern": r"took (?P<seconds>[\d.]+) s"},
                "hosts": list(hosts),
            }
        },
        "collect": [{"nic": {"every": "1s"}}],
        "measure": {"warmup": 1, "iterations": iterations, "at_most": "300s"},
        "validity": {"processor": "ignore"},
    }


@dataclass(frozen=True)
class Fleet:
    """Hosts that are up. Files of `folder` are seen by all; `hosts` are those that an inventory may list."""

    testbed: NetnsTestbed
    folder: Path
    hosts: tuple[str, ...]
    proxy: Path

    def on_controller(self, argv: Sequence[str]) -> list[str]:
        """What runs a command on `ctl`, as root there, in the root folder of this repository."""
        return self.on(CONTROLLER, argv)

    def on(self, host: str, argv: Sequence[str]) -> list[str]:
        """What runs a command on any of the hosts, likewise."""
        words = shlex.join(["env", f"PATH={search_path()}", f"PYTHONPATH={ROOT}", *map(str, argv)])
        return ["ssh", "-T", "-F", str(self.proxy / "ssh_config"), host, f"cd {shlex.quote(str(ROOT))} && {words}"]

    def silence(self, host: str) -> None:
        """Take away the only network that leads to a host; what runs there goes on."""
        argv = ["ssh", "-F", str(self.proxy / "ssh_config"), host, "ip link set eth0 down"]
        subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, timeout=UP_WITHIN_S)

    def ssh_config(self, *, jump: bool) -> Path:
        """A configuration for the ssh of `ctl`: straight to the hosts, or through the gate's own sshd."""
        path = self.folder / ("jump.config" if jump else "direct.config")
        way = [f"Host {' '.join(self.hosts)}", "    ProxyJump jump"] if jump else []
        common = (
            "Host jump",
            f"    HostName {self._address(GATE)}",
            f"    Port {GATE_PORT}",
            "    ProxyJump none",
            *way,
            "Host *",
            "    User root",
            f"    IdentityFile {self.folder / 'key'}",
            "    IdentitiesOnly yes",
            "    IdentityAgent none",
            f"    UserKnownHostsFile {self.folder / 'known_hosts'}",
            "    GlobalKnownHostsFile none",
            "    StrictHostKeyChecking yes",
            "    BatchMode yes",
        )
        path.write_text("\n".join(common) + "\n")
        path.chmod(0o600)
        return path

    def inventory(self, *, jump: bool, python: Path | None = None) -> dict[str, Any]:
        """The hosts as an inventory that is used on `ctl`, with an interpreter of the tests if none is given."""
        nodes = {name: self.testbed.topology.node(name) for name in self.hosts}
        return {
            "link": "10gbit",
            "defaults": {
                "config": str(self.ssh_config(jump=jump)),
                "python": str(python or sys.executable),
                "work": "/run/orch/runs",
            },
            "hosts": {
                name: {
                    "ssh": name,
                    "data": {"address": f"{node.address}/{node.first.prefix}", "device": node.first.device},
                }
                for name, node in nodes.items()
            },
        }

    def files(self, experiment: Mapping[str, Any], inventory: Mapping[str, Any]) -> Path:
        """The file of an experiment that is for `inventory.yaml` beside it."""
        for name, data in (("inventory.yaml", inventory), ("experiment.yaml", experiment)):
            (self.folder / name).write_text(yaml.safe_dump(dict(data), sort_keys=False))
        return self.folder / "experiment.yaml"

    @contextmanager
    def forking(self) -> Iterator[Path]:
        """An interpreter for all hosts whose ranks are forked off one that has imported torch."""
        forking, asked = Path(__file__).with_name("forking.py"), self.folder / "forking"
        path = self.folder / "python"
        path.write_text(
            f'#!/bin/sh\n[ "$1" = -u ] && exec {sys.executable} -S -E {forking} run {asked} "$@"\n'
            f'exec {sys.executable} "$@"\n'
        )
        path.chmod(0o755)
        argv = self.on_controller(["env", "OMP_NUM_THREADS=1", sys.executable, forking, "serve", asked])
        with ended(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            if server.stdout.readline() != "ready\n":
                raise OSError("the process that imports torch for all has ended")
            yield path

    def _address(self, name: str) -> str:
        return self.testbed.topology.node(name).address

    def _write(self) -> None:
        keys = self.testbed.keys
        key = self.folder / "key"
        key.touch(mode=0o600)
        key.write_text(keys.user_private)
        names = ",".join([*self.hosts, f"[{self._address(GATE)}]:{GATE_PORT}"])
        (self.folder / "known_hosts").write_text(f"{names} {keys.host_public}\n")

    @contextmanager
    def _gate(self, startups: str) -> Iterator[None]:
        """A second sshd on `gate`, which says nothing of sessions and this of logins under way."""
        usual = "/run/orch-sshd"
        lines = (
            f"ListenAddress {self._address(GATE)}:{GATE_PORT}",
            f"HostKey {usual}/host_key",
            f"AuthorizedKeysFile {usual}/authorized_keys",
            "PidFile none",
            "AuthenticationMethods publickey",
            "PermitRootLogin prohibit-password",
            "UsePAM no",
            "UseDNS no",
            "StrictModes no",
            f"MaxStartups {startups}",
        )
        config = self.folder / "gate.config"
        config.write_text("\n".join(lines) + "\n")
        argv = ["ssh", "-tt", "-F", str(self.proxy / "ssh_config"), GATE]
        line = shlex.join([str(find_program("sshd")), "-D", "-e", "-f", str(config)])
        with (self.folder / "gate.log").open("wb") as log:
            sshd = subprocess.Popen(
                [*argv, line], stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )
            try:
                Deadline.after(UP_WITHIN_S).poll(self._gate_answers, every_s=0.05, waiting_for="the gate's sshd")
                yield
            finally:
                sshd.terminate()
                sshd.wait()

    def _gate_answers(self) -> bool:
        return b"listening" in (self.folder / "gate.log").read_bytes().lower()


@contextmanager
def fleet(hosts: int, folder: Path, *, rate_bps: float = math.inf, startups: str = DEFAULT_STARTUPS) -> Iterator[Fleet]:
    """So many `hosts`, the link of `ctl` limited to `rate_bps` both ways, until the end of the block."""
    names = tuple(f"h{number}" for number in range(1, hosts + 1))
    rates = {**dict.fromkeys((GATE, *names), LINK_BPS), CONTROLLER: rate_bps}
    spec = LocalSpec(hosts=(CONTROLLER, GATE, *names), rates=rates, offloads=True)
    testbed = NetnsTestbed(spec, f"fleet-{os.getpid()}-{time.monotonic_ns()}")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        testbed.open(folder / "nodes", Deadline.after(UP_WITHIN_S))
        made = Fleet(testbed=testbed, folder=folder, hosts=names, proxy=testbed.ssh_proxy().folder)
        made._write()
        with made._gate(startups):
            yield made
    finally:
        testbed.close()
