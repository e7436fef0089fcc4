"""SSH servers of this machine's loopback, each with keys, a certificate and a configuration of its own."""

from __future__ import annotations

import contextlib
import getpass
import os
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.core.deadline import Deadline
from orchestrator.remote.transport.ssh_config import SshTarget

USER = getpass.getuser()
PATIENCE_S = 60


def keygen(path: Path, kind: str = "ed25519") -> str:
    """Make a key pair; gives the public one, type and base64."""
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", "", "-f", path], check=True)
    return path.with_suffix(".pub").read_text().strip()


def signed(path: Path, authority: Path, *options: str) -> Path:
    """A host certificate of a key."""
    public = path.with_suffix(".pub")
    subprocess.run(["ssh-keygen", "-q", "-s", authority, "-h", "-I", "host", *options, public], check=True)
    return path.with_name(f"{path.name}-cert.pub")


@dataclass(frozen=True)
class Site:
    """A folder with a user's key and configuration, and the servers that it leads to."""

    folder: Path

    @property
    def known_hosts(self) -> Path:
        return self.folder / "known_hosts"

    @property
    def config(self) -> Path:
        return self.folder / "config"

    def write(self, *hosts: str, known: str = "", options: Sequence[str] = ()) -> None:
        """What the user's files say: blocks of the configuration, options of every host, the whole of known_hosts."""
        self.known_hosts.write_text(known)
        common = (
            "Host *",
            *options,
            f"UserKnownHostsFile {self.known_hosts}",
            "GlobalKnownHostsFile none",
            f"IdentityFile {self.folder / 'user'}",
            "IdentitiesOnly yes",
            "IdentityAgent none",
            f"User {USER}",
        )
        self.config.write_text("\n".join([*hosts, *common]) + "\n")

    def target(self, host: str, **more) -> SshTarget:
        return SshTarget(**{"name": host, "host": host, "config": self.config, **more})

    def ssh(self, host: str, *options: str) -> subprocess.CompletedProcess[str]:
        """What OpenSSH itself does."""
        argv = ["ssh", "-F", self.config, "-o", "BatchMode=yes", *options, host, "true"]
        return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=PATIENCE_S)

    @contextlib.contextmanager
    def sshd(
        self,
        name: str,
        *lines: str,
        key: Path | None = None,
        pam: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Iterator[int]:
        """A server with `lines` in its configuration; gives its port. It may have a folder in place of /etc/pam.d."""
        key = key or self.folder / name
        if not key.exists():
            keygen(key)
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        config = self.folder / f"{name}.conf"
        usual = (
            f"ListenAddress 127.0.0.1:{port}",
            f"HostKey {key}",
            f"AuthorizedKeysFile {self.folder / 'authorized'}",
            "PidFile none",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "UsePAM no",
            "UseDNS no",
            "StrictModes no",
            "PermitRootLogin yes",
        )
        config.write_text("\n".join([*lines, *usual]) + "\n")
        make_run_sshd()
        with (self.folder / f"{name}.log").open("wb") as log:
            inside = ["unshare", "-m", "sh", "-c", 'mount --bind "$0" /etc/pam.d && exec "$@"', str(pam)] if pam else []
            argv = [*inside, "/usr/sbin/sshd", "-D", "-e", "-f", str(config)]
            process = subprocess.Popen(argv, stderr=log, env={**os.environ, **(env or {})})
            try:
                answering = Deadline.after(PATIENCE_S)
                answering.poll(lambda: _answers(port), every_s=0.01, waiting_for=f"sshd {name}")
                yield port
            finally:
                process.terminate()
                process.wait()

    def public(self, name: str) -> str:
        """A key of this folder as it stands in known_hosts."""
        return (self.folder / f"{name}.pub").read_text().strip()


def site(folder: Path) -> Site:
    """A new site with the user's key."""
    (folder / "authorized").write_text(keygen(folder / "user") + "\n")
    return Site(folder)


def make_run_sshd() -> None:
    """Make the folder that root's sshd looks for at each connection.

    It stays, as where the service of sshd runs: whoever removed it would close the servers of tests beside.
    """
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as connection:
        return connection.recv(4) == b"SSH-"
    return False
