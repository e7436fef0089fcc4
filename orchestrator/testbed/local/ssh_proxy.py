"""Lets other programs, such as ssh, reach the hosts of a local testbed through a socket in a folder."""

from __future__ import annotations

import array
import os
import selectors
import shlex
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import OrchError, TestbedError
from orchestrator.core.private_folder import PrivateFolder

if TYPE_CHECKING:
    from orchestrator.parts.topology import Topology
    from orchestrator.testbed.local.netns_setup import Keys

ANSWER_LIMIT_S = 10.0
CHUNK = 65536


class Reachable(Protocol):
    """A testbed that can be reached by the proxy: `socket_to` returns a TCP connection to the sshd of a node."""

    keys: Keys

    @property
    def topology(self) -> Topology: ...

    def socket_to(self, node: str, deadline: Deadline, /) -> socket.socket: ...


class SshProxy:
    """A private folder with a socket, a key, a known_hosts file and an ssh_config; gone after `close`."""

    def __init__(self, testbed: Reachable) -> None:
        self._testbed = testbed
        self._own = PrivateFolder("ssh-proxy-")
        self.folder = self._own.path
        hosts = ",".join(node.name for node in testbed.topology.nodes)
        self._own.write("key", testbed.keys.user_private)
        self._own.write("known_hosts", f"{hosts} {testbed.keys.host_public}\n")
        self._own.write("ssh_config", ssh_config_text(testbed, folder=self.folder))
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(self.folder / "socket"))
        self._listener.listen(128)
        self._thread = threading.Thread(target=self._serve, name="ssh proxy", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            with client:
                try:
                    self._answer(client)
                except OSError:
                    continue  # this client has gone; the next one may stay

    def _answer(self, client: socket.socket) -> None:
        client.settimeout(ANSWER_LIMIT_S)
        node = client.recv(256).decode(errors="replace")
        try:
            with self._testbed.socket_to(node, Deadline.after(ANSWER_LIMIT_S)) as made:
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [made.fileno()]))]
                client.sendmsg([b"ok"], rights)
        except OrchError as error:
            client.send(error.render().encode()[:CHUNK])

    def close(self) -> None:
        """Remove the folder and stop answering; a second call does nothing."""
        if self._own.closed:
            return
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(ANSWER_LIMIT_S)
        self._own.close()


def ssh_config_text(testbed: Reachable, *, folder: Path) -> str:
    """Return the ssh_config for `ssh -F` to log in to every node by its name, through the proxy in `folder`."""
    return "\n".join(
        line
        for node in testbed.topology.nodes
        for line in (
            f"Host {node.name}",
            "    User root",
            f"    IdentityFile {folder}/key",
            "    IdentitiesOnly yes",
            f"    UserKnownHostsFile {folder}/known_hosts",
            "    GlobalKnownHostsFile /dev/null",
            "    StrictHostKeyChecking yes",
            "    ProxyCommand " + shlex.join(connect_command(folder / "socket", node.name)),
            "",
        )
    )


def connect_command(path: Path, node: str) -> list[str]:
    """Return the ProxyCommand that joins its standard streams to the node's sshd, through the socket at `path`."""
    return [sys.executable, "-m", "orchestrator.testbed.local.ssh_proxy", "connect", str(path), node]


def main(argv: Sequence[str]) -> int:
    """Run `connect SOCKET NODE`: carry bytes between the standard streams and the node's sshd until one side ends."""
    if len(argv) != 3 or argv[0] != "connect":
        print("usage: python -m orchestrator.testbed.local.ssh_proxy connect SOCKET NODE", file=sys.stderr)
        return 2
    try:
        with _through_proxy(argv[1], argv[2]) as remote:
            _pump(remote)
    except (OrchError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _through_proxy(path: str, node: str) -> socket.socket:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as proxy:
        proxy.settimeout(ANSWER_LIMIT_S)
        proxy.connect(path)
        proxy.send(node.encode())
        said, descriptors, _, _ = socket.recv_fds(proxy, CHUNK, 1)
    if not descriptors:
        raise TestbedError(said.decode(errors="replace") or "the local testbed has gone", node=node)
    return socket.socket(fileno=descriptors[0])


def _pump(remote: socket.socket) -> None:
    remote.setblocking(True)
    with selectors.DefaultSelector() as selector:
        selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
        selector.register(remote, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is remote:
                    data = remote.recv(CHUNK)
                    if not data:
                        return
                    while data:
                        data = data[os.write(sys.stdout.fileno(), data) :]
                    continue
                data = os.read(sys.stdin.fileno(), CHUNK)
                if data:
                    remote.sendall(data)
                else:
                    selector.unregister(sys.stdin.fileno())
                    remote.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
