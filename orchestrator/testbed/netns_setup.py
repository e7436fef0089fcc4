"""Everything that the sandbox of a local testbed does to bring it up, written down beforehand: pure but for keys."""

from __future__ import annotations

import io
import math
import os
import pwd
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import ConfigError
from orchestrator.parts.conditions.rate import bucket
from orchestrator.parts.topology import Link, Node, Topology

if TYPE_CHECKING:
    import paramiko

SWITCH = "switch"
DEVICE = "eth0"
WORK = "/run/orch"  # in a node's own tmpfs, where the run's folder of the node is mounted
SSHD_FOLDER = "/run/orch-sshd"
DEVICE_NAME_LIMIT = 15  # IFNAMSIZ without the final zero
MOST_HOSTS = 250  # addresses and their last bytes; an experiment asks for 64 at most
CONGESTION = "cubic"
CONGESTIONS = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
SYSCTLS: Mapping[str, int] = MappingProxyType(
    {"net.ipv4.tcp_slow_start_after_idle": 0, "net.ipv4.tcp_no_metrics_save": 1}
)
_START_UP = (
    *("/etc/profile", "/etc/bash.bashrc", "/etc/bashrc", "/etc/zshenv", "/etc/environment"),
    *("~/.bashrc", "~/.bash_profile", "~/.bash_login", "~/.profile", "~/.zshenv"),
)
_ENTER = Path(__file__).parents[1] / "agents" / "container_enter.py"
_LOOKUPS = ("passwd", "group", "shadow", "hosts", "services", "protocols")
_SSHD_EMPTY = ("/var/empty", "/var/empty/sshd", "/usr/share/empty.sshd", "/var/lib/sshd")


def usual_congestion() -> str | None:
    """Cubic, as Linux comes with, whatever this machine was set to; None where its kernel has none."""
    try:
        known = CONGESTIONS.read_text(encoding="ascii").split()
    except OSError:
        return None
    return CONGESTION if CONGESTION in known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Containers:
    """Hosts that are containers: whose runtime, of which image (ours when it is None), and what they see besides.

    `python` is the image's interpreter; `mounts` are folders of this machine, read-only at the same path.
    """

    runtime: str
    image: str | None = None
    python: str = "python3"
    mounts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSpec:
    """What a local testbed looks like: 2 to 250 host names, and their links' rates in bit/s, unscaled.

    A rate of infinity leaves the link unlimited. `queue_s` is the longest queueing delay at a link's end, `congestion`
    the congestion control of connections between hosts (None: this machine's own). Hosts are network namespaces where
    `containers` is None.
    """

    hosts: tuple[str, ...]
    rates: Mapping[str, float]
    scale: int = 1
    mtu: int = 1500
    offloads: bool = False
    queue_s: float = 0.005
    sysctls: Mapping[str, int | str] = field(default_factory=lambda: SYSCTLS)
    congestion: str | None = field(default_factory=usual_congestion)
    containers: Containers | None = None

    @property
    def python(self) -> str:
        """The hosts' interpreter: this one, unless their image brings its own."""
        given = self.containers
        return given.python if given is not None and given.image is not None else sys.executable


def port_name(index: int, host: str) -> str:
    """The switch port of the host with this index: "p-h1", or a number and as much of the name as fits."""
    plain = f"p-{host}"
    return plain if len(plain) <= DEVICE_NAME_LIMIT else f"p{index}-{host}"[:DEVICE_NAME_LIMIT]


def topology(spec: LocalSpec) -> Topology:
    """The testbed as the plan sees it. Addresses are from 198.18.0.0/15, set apart for benchmarks (RFC 2544)."""
    if not 2 <= len(spec.hosts) <= MOST_HOSTS or len(set(spec.hosts)) != len(spec.hosts) or SWITCH in spec.hosts:
        raise ConfigError(f"a local testbed has 2 to {MOST_HOSTS} hosts with different names, none called {SWITCH}")
    hosts = tuple(
        Node(name=name, address=f"198.18.0.{i}", prefix=24, device=DEVICE, python=spec.python, work=WORK)
        for i, name in enumerate(spec.hosts, 1)
    )
    links = tuple(
        Link(host=name, device=DEVICE, switch=SWITCH, switch_port=port_name(i, name), rate=spec.rates[name])
        for i, name in enumerate(spec.hosts, 1)
    )
    switch = Node(name=SWITCH, kind="switch", python=sys.executable, work=WORK)
    given = spec.containers
    return Topology(
        kind="local", nodes=(*hosts, switch), links=links, scale=spec.scale, mtu=spec.mtu,
        runtime=given.runtime if given else "", image=given.image or "" if given else "",
    )  # fmt: skip


# --- what the sandbox is told ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """One pair of keys for all hosts and one for the user, made for one testbed; private ones in OpenSSH's format."""

    host_private: str
    host_public: str
    user_private: str
    user_public: str


def new_keys() -> Keys:
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    def pair() -> tuple[str, str]:
        key = Ed25519PrivateKey.generate()
        private = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.OpenSSH, form.NoEncryption())
        public = key.public_key().public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH)
        return private.decode(), public.decode()

    host, user = pair(), pair()
    return Keys(host_private=host[0], host_public=host[1], user_private=user[0], user_public=user[1])


def as_paramiko(private: str) -> paramiko.PKey:
    from paramiko import Ed25519Key

    return Ed25519Key.from_private_key(io.StringIO(private))


def setup_document(
    spec: LocalSpec, *, keys: Keys, folders: Mapping[str, Path], sshd: str, limit_s: float
) -> dict[str, Any]:
    """Everything that the sandbox does to bring the testbed up, as its module's docstring says."""
    plan = topology(spec)
    rates = {host: rate / spec.scale for host, rate in spec.rates.items() if not math.isinf(rate)}
    ports = {link.host: link.switch_port for link in plan.links}

    def shape(host: str, device: str) -> list[str]:
        if host not in rates:
            return []
        made = bucket(rates[host], queue_s=spec.queue_s, mtu=spec.mtu, offloads=spec.offloads)
        return [f"qdisc replace dev {device} root {' '.join(made.arguments)}"]

    nodes = []
    for i, node in enumerate(plan.nodes, 1):
        told: dict[str, Any] = {
            "name": node.name,
            "device": node.device,
            "folder": str(folders[node.name]),
            "work": node.work,
        }
        told |= {"links": [], "ip": [], "tc": [], "plain": [], "sysctls": {}}
        if node.kind == "host":
            port, mac = ports[node.name], _mac(i)
            told["links"] = [
                f"link add {port} mtu {spec.mtu} type veth"
                f" peer name {DEVICE} mtu {spec.mtu} address {mac} netns {{pid}}",
                f"link set {port} master br0 up",
            ]
            told["ip"] = [
                "link set lo up",
                f"addr add {node.address}/{node.prefix} dev {DEVICE}",
                f"link set {DEVICE} up",
                *_congestion(node, spec.congestion),
            ]
            told["tc"] = shape(node.name, DEVICE)
            told["plain"] = [] if spec.offloads else [DEVICE]
            told["sysctls"] = dict(spec.sysctls)
        told["joins"] = spec.containers is not None and node.kind == "host"
        told["files"] = _node_files(node, keys, enter=told["joins"])
        told["sshd"] = [sshd, "-D", "-e", "-f", f"{SSHD_FOLDER}/config"]
        nodes.append(told)
    switch = {
        "ip": [
            "link set lo up",
            "link add br0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0",
            "link set br0 up",
        ],
        "tc": [line for host, port in ports.items() for line in shape(host, port)],
        "plain": [] if spec.offloads else list(ports.values()),
    }
    files, binds = _shared_files(plan)
    return {
        "files": files,
        "bind": binds,
        "limit_s": limit_s,
        # A machine has one table for what all its namespaces learn: 64 hosts that all talk to all would overflow it.
        "neighbours": {node.address: _mac(i) for i, node in enumerate(plan.nodes, 1) if node.kind == "host"},
        "switch": switch,
        "nodes": nodes,
    }


def _congestion(node: Node, algorithm: str | None) -> list[str]:
    """Routes by which connections of the host use an algorithm; a sysctl would need the machine's root to allow it.

    The route to the host itself too: ranks of one host meet by its address.
    """
    if algorithm is None:
        return []
    network = ip_network(f"{node.address}/{node.prefix}", strict=False)
    of_host = f"dev {DEVICE} proto kernel scope {{}} src {node.address} congctl {algorithm}"
    return [
        f"route replace {network} {of_host.format('link')}",
        f"route replace table local local {node.address} {of_host.format('host')}",
    ]


def _mac(index: int) -> str:
    """The hardware address of the host with this index, from 1."""
    return f"02:00:c6:12:00:{index:02x}"


def _node_files(node: Node, keys: Keys, *, enter: bool) -> dict[str, list[Any]]:
    program = shlex.join([sys.executable, "-I", "-S", f"{SSHD_FOLDER}/enter"])
    config = [
        "Port 22",
        "ListenAddress 127.0.0.1",
        *([f"ListenAddress {node.address}"] if node.address else []),
        f"HostKey {SSHD_FOLDER}/host_key",
        f"AuthorizedKeysFile {SSHD_FOLDER}/authorized_keys",
        "PidFile none",
        "LogLevel ERROR",
        "AuthenticationMethods publickey",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "PermitRootLogin prohibit-password",
        "PermitUserRC no",
        "PrintMotd no",
        "UsePAM no",
        "UseDNS no",
        "StrictModes no",
        "MaxStartups 200:30:400",
        "MaxSessions 100",
        "Subsystem sftp internal-sftp",
        *([f"ForceCommand {program}"] if enter else []),
    ]
    entrance = {f"{SSHD_FOLDER}/enter": [0o600, _ENTER.read_text()]} if enter else {}
    return {
        **entrance,
        f"{SSHD_FOLDER}/config": [0o600, "\n".join(config) + "\n"],
        f"{SSHD_FOLDER}/host_key": [0o600, keys.host_private],
        f"{SSHD_FOLDER}/authorized_keys": [0o600, keys.user_public + "\n"],
    }


def _shared_files(plan: Topology) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """What all nodes see instead of this machine's own: names, root's account, quick shells; and binds for the rest."""
    home = pwd.getpwuid(0).pw_dir if os.geteuid() == 0 else str(Path("~").expanduser())
    shell = next((path for path in ("/bin/bash", "/bin/sh") if Path(path).exists()), "/bin/sh")
    accounts = Path("/etc/passwd").read_text().splitlines()
    others = [line for line in accounts if not line.startswith("root:")]
    names = ["127.0.0.1 localhost", *(f"{host.address} {host.name}" for host in plan.hosts)]
    files = {
        "/etc/hosts": "\n".join(names) + "\n",
        "/etc/nsswitch.conf": "".join(f"{name}: files\n" for name in _LOOKUPS),
        "/etc/passwd": "\n".join([f"root:x:0:0:root:{home}:{shell}", *others]) + "\n",
        "/etc/shadow": "root:*:19000:0:99999:7:::\n",
    }
    start_up = [(os.devnull, path.replace("~", home)) for path in _START_UP]
    return files, [*start_up, *(("empty", path) for path in _SSHD_EMPTY)]
