"""Two hosts with real sshd and real sudo, and an ordinary user on them: network namespaces of this machine.

sshd serves one connection each (`-i`), started by a ProxyCommand in the host's namespace, so that nothing listens
anywhere. The user and the rules for sudo are this machine's own, and are removed with the hosts.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from orchestrator.analysis.capture import flowtable
from orchestrator.analysis.capture.stages import compiled
from orchestrator.core import machine_code
from tests.helpers import machine
from tests.helpers.sshd_help import make_run_sshd

ROOT = Path(__file__).parents[2]
WRAPPER = ROOT / "playbooks/hosts/orch-agent"
RULES = ROOT / "playbooks/hosts/sudoers-orch"
INSTALLED = "/usr/local/sbin/orch-agent"  # as the playbooks name it
PYTHON = "/usr/bin/python3"  # this machine's own: that of the tests may lie where only root may go
NAMES = ("a", "b")
ALL = "USER ALL=(root) NOPASSWD: ALL"
ONLY_THE_WRAPPER = RULES.read_text()
SCRIPT = """
import time
for step in range(10**6):
    began = time.perf_counter()
    time.sleep(0.05)
    print(f"step {step} took {time.perf_counter() - began:.6f} s", flush=True)
"""


def sh(*argv: object, **more: object) -> str:
    done = subprocess.run([*map(str, argv)], capture_output=True, text=True, timeout=60, check=False, **more)  # type: ignore[call-overload]
    assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
    return str(done.stdout)


def users(*argv: object) -> None:
    """Change the machine's users; such programs give up when another one is at it."""
    with machine.held("users"):
        sh(*argv)


class SudoHosts:
    """The hosts while they are up; `sudo` writes what the user may do, `inventory` says how to reach them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.number = os.getpid()
        self.user = f"orch{self.number}"
        self.rules = Path(f"/etc/sudoers.d/orch-test-{self.number}")
        self.wrapper = folder / "orch-agent"
        self.programs = folder / "bin"  # found before the system's, where no sudo is
        self._closing = contextlib.ExitStack()

    @property
    def uid(self) -> int:
        return pwd.getpwnam(self.user).pw_uid

    def open(self) -> None:
        self.folder.chmod(0o755)
        self._closing.callback(self.rules.unlink, missing_ok=True)
        self._add_user()
        for name in NAMES:
            sh("ip", "netns", "add", self.namespace(name))
            self._closing.callback(sh, "ip", "netns", "delete", self.namespace(name))
        ends = [("name", "eth0", "netns", self.namespace(name)) for name in NAMES]
        sh("ip", "link", "add", *ends[0], "type", "veth", "peer", *ends[1])
        for number, name in enumerate(NAMES, 1):
            self.on(name, "ip", "link", "set", "lo", "up")
            self.on(name, "ip", "address", "add", f"198.18.7.{number}/24", "dev", "eth0")
            self.on(name, "ip", "link", "set", "eth0", "up")
            self.on(name, "ethtool", "-K", "eth0", "tso", "off", "gso", "off", "gro", "off")
        self._ssh()

    def close(self) -> None:
        self._closing.close()

    def _add_user(self) -> None:
        home = self.folder / "home"
        users("useradd", "--no-create-home", "--home-dir", home, "--shell", "/bin/sh", "--password", "*", self.user)
        self._closing.callback(users, "userdel", "--force", self.user)
        home.mkdir()
        shutil.chown(home, self.user)
        self._give_reader(home)
        self._closing.callback(shutil.rmtree, f"/var/tmp/orch-{self.uid}", ignore_errors=True)

    def _give_reader(self, home: Path) -> None:
        """Put the capture reader's machine code into the user's cache: on a busy machine it compiles for minutes."""
        flowtable.warm()
        cache = home / ".cache/orch/compiled"
        cache.mkdir(parents=True)
        for folder in machine_code.folders(Path(compiled.__file__).parent):
            for code in folder.glob("reader-*.bin"):
                shutil.copy(code, cache)
        sh("chown", "-R", self.user, home)

    def _ssh(self) -> None:
        for name in ("host", "user"):
            sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", self.folder / name)
        key = (self.folder / "host.pub").read_text()
        (self.folder / "known_hosts").write_text("".join(f"{name} {key}" for name in NAMES))
        lines = [
            f"HostKey {self.folder}/host",
            f"AuthorizedKeysFile {self.folder}/user.pub",
            "StrictModes no",
            "UsePAM no",
            "UseDNS no",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "PidFile none",
            f"SetEnv PATH={self.programs}:/usr/bin:/bin",
        ]
        (self.folder / "sshd_config").write_text("\n".join(lines) + "\n")
        make_run_sshd()
        serve = f"{shutil.which('sshd', path='/usr/sbin:/usr/local/sbin')} -i -f {self.folder}/sshd_config"
        hosts = [f"Host {n}\n  ProxyCommand ip netns exec {self.namespace(n)} {serve}\n" for n in NAMES]
        common = f"Host *\n  User {self.user}\n  IdentityFile {self.folder}/user\n"
        common += f"  UserKnownHostsFile {self.folder}/known_hosts\n"
        (self.folder / "ssh_config").write_text("".join(hosts) + common)

    def namespace(self, name: str) -> str:
        return f"orch-{self.number}-{name}"

    def on(self, name: str, *argv: object) -> str:
        """What a command says that root runs on a host."""
        return sh("ip", "netns", "exec", self.namespace(name), *argv)

    def install(self) -> None:
        """The wrapper, as its first lines say."""
        sh("install", "-o", "root", "-g", "root", "-m", "0755", WRAPPER, self.wrapper)

    def capable(self, program: str) -> None:
        """A copy of a program that has CAP_NET_RAW by its file."""
        self.programs.mkdir()
        copy = self.programs / program
        shutil.copy(str(shutil.which(program)), copy)
        os.setxattr(copy, "security.capability", bytes.fromhex("0100000200200000000000000000000000000000"))

    def sudo(self, *rules: str) -> None:
        """What sudo lets the user do; USER and the wrapper's usual path stand for those of this test."""
        text = "\n".join(rules).replace("USER", self.user).replace("%orch", self.user)
        self.rules.write_text(text.replace(INSTALLED, str(self.wrapper)) + "\n")
        self.rules.chmod(0o440)
        sh("visudo", "-c", "-f", self.rules)

    def inventory(self, sudo: object) -> dict[str, object]:
        return {
            "link": "1gbit",
            "defaults": {"config": str(self.folder / "ssh_config"), "python": PYTHON, "sudo": sudo},
            "hosts": {
                name: {"ssh": name, "data": {"address": f"198.18.7.{number}/24", "device": "eth0"}}
                for number, name in enumerate(NAMES, 1)
            },
        }

    def experiment(self, folder: Path, sudo: object, **changes: Any) -> dict[str, Any]:
        """A light run on them, whose script is in this folder."""
        script = folder / "train.py"
        script.write_text(SCRIPT)
        workload = {
            "argv": ["{python}", "train.py"],
            "files": [str(script)],
            "hosts": ["a", "b"],
            "iterations": {"pattern": r"took (?P<seconds>[\d.]+) s"},
        }
        return {
            "name": "own",
            "testbed": {"inventory": self.inventory(sudo)},
            "conditions": [{"rate": {"where": "nic", "host": "a", "rate": "120mbit"}}],
            "workload": {"command": workload},
            "traffic": [{"iperf": {"from": "a", "to": "b", "load": "30mbit", "streams": 2}}],
            "collect": ["tcpdump", "nic", "qdisc", "tcp", "cpu"],
            "measure": {"warmup": 2, "iterations": 40, "at_most": "60s"},
            "validity": {"clock": "100ms"},
            **changes,
        }


def processes_of(uid):
    """PIDs and command lines of a user's processes, by their owner alone: of those with rights nobody sees the tag."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if entry.stat().st_uid == uid or f"Uid:\t{uid}\t" in (entry / "status").read_text():
                found.append((int(entry.name), (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()))
        except OSError:
            continue
    return found


@contextlib.contextmanager
def up() -> Iterator[SudoHosts]:
    with tempfile.TemporaryDirectory(prefix="orch-sudo-", dir="/var/tmp") as folder:
        hosts = SudoHosts(Path(folder))
        try:
            hosts.open()
            yield hosts
        finally:
            hosts.close()
