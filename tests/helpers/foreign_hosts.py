"""Hosts that know nothing of us: containers with Debian's own sshd and its untouched sshd_config, behind a jump host.

The jump host and the hosts meet on a management network, the hosts alone on the data plane. An ordinary user with sudo
logs in, with a key. Devices are as the kernel makes them, offloads and all. Nothing of it is seen from this machine's
own network: the way to the jump host is a ProxyCommand into its namespace.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from orchestrator.core import fanout
from orchestrator.core.deadline import Deadline
from orchestrator.testbed.local import host_image, runtimes
from orchestrator.testbed.local.host_image import Tree, digest

USER, UID = "ops", 1000
STOCK = Path("/usr/share/openssh/sshd_config")  # as openssh-server's package installs it
PAM = ("pam.d", "pam.conf", "security", "login.defs", "alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d")
MORE = (*PAM, "ssl", "protocols", "services", "ethertypes", "iproute2", "default", "profile", "profile.d", "shells")
JUMP = "jump"
PATIENCE_S = 120.0
FORWARD = """
import os, selectors, socket, sys
there = socket.create_connection((sys.argv[1], 22))
with selectors.DefaultSelector() as both:
    both.register(0, selectors.EVENT_READ)
    both.register(there, selectors.EVENT_READ)
    while True:
        for key, _ in both.select():
            data = os.read(key.fd, 65536)
            if not data:
                sys.exit()
            there.sendall(data) if key.fd == 0 else os.write(1, data)
"""


def image(key: str, sshd: str) -> Tree:
    """A host as Debian sets it up: its sshd_config, a user of group sudo who needs no password and has this key."""
    made = host_image.host_tree(etc=False)
    for name in MORE:
        path = Path("/etc", name)
        if path.is_dir():
            made.copy(path)
        elif path.exists():
            made.file(str(path), path.read_bytes())
    made.file("/etc/ssh/sshd_config", sshd)
    made.folder("/etc/ssh/sshd_config.d")
    accounts = Path("/usr/share/base-passwd/passwd.master").read_text().replace(":*:", ":x:")
    own = f"sshd:x:100:65534::/run/sshd:/usr/sbin/nologin\n{USER}:x:{UID}:{UID}::/home/{USER}:/bin/bash\n"
    made.file("/etc/passwd", accounts + own)
    groups = Path("/usr/share/base-passwd/group.master").read_text()
    made.file("/etc/group", f"{groups}{USER}:x:{UID}:\n")
    made.file("/etc/shadow", f"root:*:19000:0:99999:7:::\n{USER}:*:19000:0:99999:7:::\n", mode=0o640)
    made.file("/etc/nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files\n")
    made.file("/etc/sudoers", "Defaults env_reset\n@includedir /etc/sudoers.d\n", mode=0o440)
    made.file(f"/etc/sudoers.d/{USER}", f"{USER} ALL=(ALL) NOPASSWD: ALL\n", mode=0o440)
    made.folder(f"/home/{USER}", owner=UID)
    made.folder(f"/home/{USER}/.ssh", mode=0o700, owner=UID)
    made.file(f"/home/{USER}/.ssh/authorized_keys", key, mode=0o600, owner=UID)
    return made


def soon() -> Deadline:
    return Deadline.after(PATIENCE_S)


class ForeignHosts:
    """The hosts while they are up, and how `ssh` and an inventory reach them."""

    def __init__(self, folder: Path, names: tuple[str, ...], *, sshd: str = "") -> None:
        self.folder, self.names = folder, names
        self.runtime = runtimes.detected("podman")
        self.run = f"foreign-{os.getpid()}"
        self._sshd = sshd or STOCK.read_text()
        self._closing = contextlib.ExitStack()
        self._pids: dict[str, int] = {}

    def open(self) -> None:
        self._sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", self.folder / "user")
        archive = image((self.folder / "user.pub").read_text(), self._sshd).archive()
        tag = f"localhost/orch-foreign:{digest(archive)}"
        self._podman("import", "-", tag, data=archive)
        self._closing.callback(self._podman, "rmi", "--force", tag)
        self._closing.callback(self._remove)
        self._sh("ip", "netns", "add", self.run)
        self._closing.callback(self._sh, "ip", "netns", "delete", self.run)
        for bridge in ("control", "data"):
            self._ip("link", "add", bridge, "type", "bridge")
            self._ip("link", "set", bridge, "up")
        names = (JUMP, *self.names)
        self._pids = fanout.each(names, lambda name: self._start(name, tag), deadline=soon(), what="hosts")
        for number, name in enumerate(names, 1):
            self._plug(name, number)
        soon().poll(lambda: all(map(self._listens, self._pids)), every_s=0.05, waiting_for="every sshd")
        self._write_config()

    def close(self) -> None:
        self._closing.close()

    def on(self, name: str, *argv: object) -> str:
        """What a command says that root runs on a host."""
        return self._podman("exec", self._container(name), *map(str, argv))

    @property
    def config(self) -> Path:
        return self.folder / "config"

    def inventory(self, **more: object) -> dict[str, object]:
        """The hosts as an inventory's file names them, with the links that the kernel's devices claim to have."""
        return {
            "link": "10gbit",
            "defaults": {"config": str(self.config), "python": sys.executable, "sudo": True, **more},
            "hosts": {
                name: {"ssh": name, "data": {"address": f"198.18.9.{number}/24", "device": "eth1"}}
                for number, name in enumerate(self.names, 2)
            },
        }

    def _start(self, name: str, tag: str) -> int:
        mounts = [*host_image.programs(), *host_image.environments([])]
        start = "mkdir -p /run/sshd && ssh-keygen -A && exec /usr/sbin/sshd -D -e"
        rights = runtimes.rights((*runtimes.CAPABILITIES, "AUDIT_WRITE"))
        self._podman(
            "run",
            "--detach",
            "--rm",
            "--name",
            self._container(name),
            "--hostname",
            name,
            "--network",
            "none",
            "--label",
            f"{runtimes.LABEL}={self.run}",
            "--pids-limit",
            "-1",
            *runtimes.limits(),
            *rights,
            "--security-opt",
            "unmask=/proc/sys",
            *(word for path in mounts for word in runtimes.mount(path, path)),
            "--add-host",
            f"{name}:127.0.1.1",
            tag,
            "/bin/sh",
            "-c",
            start,
        )
        return int(self._podman("inspect", "--format", "{{.State.Pid}}", self._container(name)))

    def _plug(self, name: str, number: int) -> None:
        ends = {"eth0": ("control", f"10.77.0.{number}/24"), "eth1": ("data", f"198.18.9.{number}/24")}
        if name == JUMP:
            del ends["eth1"]
        for device, (bridge, address) in ends.items():
            port = f"{bridge[0]}{number}"
            self._ip("link", "add", port, "type", "veth", "peer", "name", device, "netns", self._pids[name])
            self._ip("link", "set", port, "master", bridge, "up")
            self._inside(name, "ip", "address", "add", address, "dev", device)
            self._inside(name, "ip", "link", "set", device, "up")

    def _inside(self, name: str, *argv: object) -> str:
        return self._sh("nsenter", f"--net=/proc/{self._pids[name]}/ns/net", *argv)

    def _listens(self, name: str) -> bool:
        rows = Path(f"/proc/{self._pids[name]}/net/tcp").read_text().splitlines()
        return any(row.split()[1].endswith(":0016") for row in rows)

    def _write_config(self) -> None:
        addresses = {name: f"10.77.0.{number}" for number, name in enumerate((JUMP, *self.names), 1)}
        keys = {name: self.on(name, "cat", "/etc/ssh/ssh_host_ed25519_key.pub") for name in addresses}
        (self.folder / "known_hosts").write_text("".join(f"{addresses[name]} {key}" for name, key in keys.items()))
        (self.folder / "forward.py").write_text(FORWARD)
        way = f"nsenter --net=/proc/{self._pids[JUMP]}/ns/net {sys.executable} -I -S {self.folder}/forward.py %h"
        blocks = [f"Host {name}\n  HostName {address}\n" for name, address in addresses.items()]
        jumps = f"Host {JUMP}\n  ProxyCommand {way}\nHost {' '.join(self.names)}\n  ProxyJump {JUMP}\n"
        common = f"  User {USER}\n  IdentityFile {self.folder}/user\n  UserKnownHostsFile {self.folder}/known_hosts\n"
        self.config.write_text("".join(blocks) + jumps + "Host *\n" + common)

    def _container(self, name: str) -> str:
        return f"{self.run}-{name}"

    def _remove(self) -> None:
        """End the hosts and wait until the runtime has forgotten them."""
        names = list(self.runtime.of_ours(soon(), self.run))
        if names:
            self._podman("rm", "--force", "--time", "0", *names)
        soon().poll(lambda: not self.runtime.of_ours(soon(), self.run), every_s=0.1, waiting_for="the end")

    def _podman(self, *words: str, data: bytes | None = None) -> str:
        return self.runtime.ask(*words, deadline=soon(), data=data)

    def _ip(self, *words: object) -> str:
        return self._sh("ip", "-netns", self.run, *words)

    @staticmethod
    def _sh(*argv: object) -> str:
        done = subprocess.run([*map(str, argv)], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
        return done.stdout


@contextlib.contextmanager
def up(*names: str, sshd: str = "") -> Iterator[ForeignHosts]:
    """Bring up hosts of these names behind a jump host; `sshd` is another text of their sshd_config."""
    with tempfile.TemporaryDirectory(prefix="orch-foreign-", dir="/var/tmp") as folder:
        hosts = ForeignHosts(Path(folder), names, sshd=sshd)
        try:
            hosts.open()
            yield hosts
        finally:
            hosts.close()
