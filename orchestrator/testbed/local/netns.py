"""The local testbed: hosts as network namespaces behind a switch of their own, with or without root."""

from __future__ import annotations

import array
import json
import math
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, ClassVar

from orchestrator.agents.local.sandbox_messages import Answer, Setup, SocketRequest
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import DeadlineExceeded, TestbedError
from orchestrator.testbed.local import netns_needs, runtimes
from orchestrator.testbed.local.containers import ContainerHosts
from orchestrator.testbed.local.local_spec import NAMESPACES, LocalSpec, topology
from orchestrator.testbed.local.netns_needs import requirements_problems
from orchestrator.testbed.local.netns_setup import new_keys, setup_document, takes_seed
from orchestrator.testbed.local.ssh_proxy import SshProxy, ssh_config_text

if TYPE_CHECKING:
    from orchestrator.parts.protocols import Channel

__all__ = ["LocalSpec", "NetnsTestbed", "requirements_problems", "ssh_config_text", "topology"]

_SANDBOX = Path(__file__).parents[2] / "agents" / "local" / "sandbox.py"
ALIVE_S = 0.5  # between looks whether the sandbox still runs
_REMEDIES = {
    "links": "check `mtu` and the number of hosts",
    "sysctls": "check the names and values of `sysctls`; some exist only outside of namespaces",
    "mounts": "a container often forbids mounts: run on the machine itself, or give the container CAP_SYS_ADMIN",
    "namespaces": "raise the limits under /proc/sys/user (max_net_namespaces, max_pid_namespaces, ...)",
    "sshd": "see what sshd printed above; `sshd -t` checks the installation",
}


class NetnsTestbed:
    """One sandbox: a process tree that ends, with all its namespaces and mounts, when this process does."""

    __test__: ClassVar[bool] = False

    def __init__(self, spec: LocalSpec, run_id: str) -> None:
        self.spec = spec
        self.run_id = run_id
        self.topology = topology(spec)
        self.keys = new_keys()
        self.up_s = math.nan  # how long the sandbox took to come up
        self._folders: dict[str, Path] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._said: IO[bytes] | None = None
        self._lock = threading.Lock()
        self._key: int | None = None
        self._ssh_proxy: SshProxy | None = None
        addresses = {host.name: host.address for host in self.topology.hosts}
        self._containers = ContainerHosts(spec.containers, addresses, run_id) if spec.containers else None

    def open(self, run_folder: Path, deadline: Deadline) -> None:
        """Start the sandbox; each node's work folder is <run_folder>/hosts/<node> on this machine's disk."""
        if self._process is not None:
            raise AssertionError("a local testbed is opened once")
        sshd = netns_needs.find_program("sshd")
        if sshd is None or netns_needs.missing_programs():
            raise _lacking(netns_needs.missing_programs())
        self._folders = {node.name: run_folder.resolve() / "hosts" / node.name for node in self.topology.nodes}
        for folder in self._folders.values():
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir(mode=0o755, exist_ok=True)  # where others may write no agent works
        document = setup_document(
            self.spec, keys=self.keys, folders=self._folders, sshd=sshd, limit_s=max(1.0, deadline.remaining)
        )
        try:
            joined = self._containers.open(self._folders, deadline) if self._containers else {}
            self._start()
            self._set_up(document, [number for pair in joined.values() for number in pair], deadline)
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control = ours
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the testbed
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        before, flags = ((), netns_needs.user_flags()) if self._containers is None else (self._containers.users, ())
        environment = {"PATH": netns_needs.search_path(), "LANG": "C.UTF-8", "ORCH_LOCAL_TESTBED": self.run_id}
        if before:
            environment = {**runtimes.environment(), **environment}
        argv = [*before, *netns_needs.UNSHARE, *flags, sys.executable, "-I", "-S", str(_SANDBOX)]
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [*argv, str(theirs.fileno()), self.run_id],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=self._said,
                    pass_fds=[theirs.fileno()],
                    env=environment,
                    cwd="/",
                    start_new_session=True,
                )
            except OSError as error:
                raise _missing() or TestbedError(f"cannot start the local testbed: {error}") from error

    def _set_up(self, document: Setup, namespaces: Sequence[int], deadline: Deadline) -> None:
        answer, _ = self._ask(document, deadline, descriptors=namespaces)
        if "ready" not in answer:
            raise self._failure(answer)
        self.up_s = float(answer["ready"])

    def _ask(
        self, request: Setup | SocketRequest, deadline: Deadline, *, descriptors: Sequence[int] = ()
    ) -> tuple[Answer, int | None]:
        """Send the sandbox a message with descriptors; return its answer and the descriptor that came with it."""
        with self._lock:
            if self._control is None:
                raise TestbedError("the local testbed is not open")
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
            try:
                self._control.settimeout(max(deadline.remaining, 1e-3))
                self._control.sendmsg([json.dumps(request).encode()], rights)
                data, ancillary = self._answer(self._control, deadline)
            except TimeoutError as error:
                # an answer that comes later would be taken for that of the next question
                self._control.shutdown(socket.SHUT_RDWR)
                raise DeadlineExceeded("gave up waiting for the local testbed") from error
            except (BrokenPipeError, ConnectionResetError):
                data, ancillary = b"", []
        if not data:
            raise self._ended()
        came = array.array("i")
        for _, _, payload in ancillary:
            came.frombytes(payload)
        answer: Answer = json.loads(data)
        return answer, (came[0] if came else None)

    def _answer(self, control: socket.socket, deadline: Deadline) -> tuple[bytes, list[tuple[int, int, bytes]]]:
        """Return the sandbox's next message, empty where it has ended.

        Processes that it left may still hold the socket.
        """
        process = self._process
        while True:
            ended = process is not None and process.poll() is not None
            control.settimeout(max(min(deadline.remaining, ALIVE_S), 1e-3))
            try:
                data, ancillary, _, _ = control.recvmsg(1 << 20, socket.CMSG_SPACE(4), socket.MSG_CMSG_CLOEXEC)
            except TimeoutError:
                if process is not None and ended:
                    netns_needs.end_group(process)
                    return b"", []
                if deadline.expired:
                    raise
            else:
                return data, ancillary

    def _failure(self, answer: Answer) -> TestbedError:
        return TestbedError(
            f"the local testbed did not come up: {answer['error']}",
            node=answer.get("node"),
            argv=answer.get("argv") or None,
            tail=str(answer.get("tail", "")) or self._printed(),
            hint=_REMEDIES.get(str(answer.get("step", ""))),
        )

    def _ended(self) -> TestbedError:
        """Return the error of a sandbox that ended: what this machine lacks, if that is the cause, else its output."""
        return _missing() or TestbedError("the local testbed ended unexpectedly", tail=self._printed())

    def _printed(self) -> str:
        if self._said is None:
            return ""
        size = os.fstat(self._said.fileno()).st_size
        return os.pread(self._said.fileno(), 4096, max(0, size - 4096)).decode(errors="replace")

    def socket_to(self, node: str, deadline: Deadline, *, port: int = 22) -> socket.socket:
        """Connect by TCP to a port of the node's loopback: it does not touch the data plane."""
        answer, descriptor = self._ask({"socket": node}, deadline)
        if descriptor is None:
            raise TestbedError(answer["error"], node=node, tail=answer["tail"])
        made = socket.socket(fileno=descriptor)
        try:
            made.settimeout(max(deadline.remaining, 1e-3))
            made.connect(("127.0.0.1", port))
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            made.settimeout(None)
        except OSError as error:
            made.close()
            raise TestbedError(f"cannot connect to port {port}: {error}", node=node) from error
        return made

    def connect(self, node: str, deadline: Deadline) -> Channel:
        """Start an agent and return its byte stream.

        It runs as the node's root: without root here that is this user.
        """
        from orchestrator.remote.transport import ssh
        from orchestrator.remote.transport.ssh_config import SshTarget

        # the key is in memory alone; the configuration of this user's ssh is meant for other hosts
        key, no_config = Path(f"/proc/self/fd/{self._key_descriptor()}"), Path(os.devnull)
        target = SshTarget(name=node, host=node, user="root", port=22, key=key, config=no_config)
        return ssh.connect(
            target,
            python=self.topology.node(node).python,
            deadline=deadline,
            sock=self.socket_to(node, deadline),
            host_key=self.keys.host_public,
        )

    def _key_descriptor(self) -> int:
        with self._lock:
            if self._key is None:
                self._key = os.memfd_create("orch-key")
                os.write(self._key, self.keys.user_private.encode())
            return self._key

    def local_folder(self, node: str) -> Path | None:
        return self._folders.get(node)

    def about(self) -> Mapping[str, str]:
        if self._containers is not None:
            return self._containers.about
        fabric = self.topology.fabric
        if fabric is None:
            return {"runtime": NAMESPACES}
        seed = str(fabric.seed) if takes_seed() else "the kernel's own"
        return {"runtime": NAMESPACES, "multipath": fabric.multipath, "multipath_seed": seed}

    def ssh_proxy(self) -> SshProxy:
        """Return a folder through which other programs reach the hosts by SSH, until the testbed is closed."""
        if self._ssh_proxy is None:
            self._ssh_proxy = SshProxy(self)
        return self._ssh_proxy

    def close(self) -> None:
        """End the testbed; a second call does nothing."""
        if self._ssh_proxy is not None:
            self._ssh_proxy.close()
            self._ssh_proxy = None
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            try:
                self._process.wait(5.0)
            except subprocess.TimeoutExpired:
                self._process.kill()  # the sandbox dies with it: unshare --kill-child
                self._process.wait(5.0)
        if self._containers is not None:
            self._containers.close()
        if self._said is not None:
            self._said.close()
            self._said = None
        if self._key is not None:
            os.close(self._key)
            self._key = None


def _missing() -> TestbedError | None:
    """Return one error for all that this machine lacks; None when nothing is known to be missing."""
    found = requirements_problems()
    return _lacking(found) if found else None


def _lacking(found: Sequence[tuple[str, str]]) -> TestbedError:
    return TestbedError(
        "a local testbed cannot run here: " + "; ".join(what for what, _ in found),
        hint="; ".join(dict.fromkeys(remedy for _, remedy in found)),
    )
