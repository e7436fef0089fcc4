"""Prepares the document by which the sandbox of a local testbed is set up: commands of ip and tc, files, sshd, keys."""

from __future__ import annotations

import io
import math
import os
import pwd
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.agents.local.sandbox_messages import NodeSetup, Setup, SwitchSetup
from orchestrator.parts.shared import fabric_routes
from orchestrator.parts.shared.token_bucket import bucket
from orchestrator.parts.topology import Node, Rail, Topology
from orchestrator.testbed.local.local_spec import (
    DEVICE,
    LEAST_RTO_MS,
    SWITCH,
    LocalSpec,
    bridge_name,
    mac_address,
    topology,
)

if TYPE_CHECKING:
    import paramiko

FIVE_TUPLE = 0x37  # addresses, protocol and ports (Documentation/networking/ip-sysctl.rst, fib_multipath_hash_fields)
SSHD_FOLDER = "/run/orch-sshd"
_START_UP = (
    *("/etc/profile", "/etc/bash.bashrc", "/etc/bashrc", "/etc/zshenv", "/etc/environment"),
    *("~/.bashrc", "~/.bash_profile", "~/.bash_login", "~/.profile", "~/.zshenv"),
)
_ENTER = Path(__file__).parents[2] / "agents" / "container_enter.py"
_LOOKUPS = ("passwd", "group", "shadow", "hosts", "services", "protocols")
_SSHD_EMPTY = ("/var/empty", "/var/empty/sshd", "/usr/share/empty.sshd", "/var/lib/sshd")


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


def setup_document(spec: LocalSpec, *, keys: Keys, folders: Mapping[str, Path], sshd: str, limit_s: float) -> Setup:
    """Return the sandbox's set-up document, in the format of its module's docstring."""
    plan = topology(spec)
    nodes: list[NodeSetup] = []
    for i, node in enumerate(plan.nodes, 1):
        joins = spec.containers is not None and node.kind == "host"
        setup: NodeSetup = {
            "name": node.name,
            "folder": str(folders[node.name]),
            "work": node.work,
            "network": node.name != SWITCH,
            "first": False,
            "links": [],
            "ip": [],
            "tc": [],
            "plain": [],
            "sysctls": {},
            "files": _node_files(node, keys, enter=joins),
            "sshd": [sshd, "-D", "-e", "-f", f"{SSHD_FOLDER}/config"],
            "joins": joins,
        }
        if node.kind == "host":
            setup["links"] = _host_links(spec, plan, node.name, i)
            setup["ip"] = ["link set lo up", *(line for rail in node.rails for line in _addressed(rail, spec))]
            setup["tc"] = _shaped(spec, [(device, spec.rates[node.name]) for device in node.devices])
            setup["plain"] = [] if spec.offloads else list(node.devices)
            setup["sysctls"] = dict(spec.sysctls)
        elif spec.fabric is not None:
            _set_up_switch(setup, spec, plan)
        nodes.append(setup)
    if spec.fabric is not None:
        _know_each_other(nodes, plan)
    files, binds = _shared_files(plan)
    return {
        "files": files,
        "bind": binds,
        "limit_s": limit_s,
        "ip": spec.ip,
        # A machine has one table for what all its namespaces learn: 64 hosts that all talk to all would overflow it.
        "neighbours": {
            f"{DEVICE}{rail}": {host.rails[rail].address: mac_address(i, rail) for i, host in enumerate(plan.hosts, 1)}
            for rail in range(spec.rails)
        }
        if spec.fabric is None
        else {},
        "switch": _bridges(spec, plan),
        "nodes": nodes,
    }


def _shaped(spec: LocalSpec, ports: Iterable[tuple[str, float]]) -> list[str]:
    """Return the lines of `tc` that give devices their rates (bit/s, unscaled); an unlimited one gets none."""
    lines = []
    for device, rate in ports:
        if not math.isinf(rate):
            queue_s = spec.queue_s * spec.dilation
            made = bucket(rate / spec.scale, queue_s=queue_s, mtu=spec.mtu, offloads=spec.offloads)
            lines.append(f"qdisc replace dev {device} root {' '.join(made.arguments)}")
    return lines


def _bridges(spec: LocalSpec, plan: Topology) -> SwitchSetup:
    """Return the set-up of the one switch, a bridge a rail; nothing where switches have networks of their own."""
    if spec.fabric is not None:
        return {"ip": [], "tc": [], "plain": []}
    names = [bridge_name(rail) for rail in range(spec.rails)]
    return {
        "ip": [
            "link set lo up",
            *(f"link add {name} type bridge stp_state 0 forward_delay 0 mcast_snooping 0" for name in names),
            *(f"link set {name} up" for name in names),
        ],
        "tc": _shaped(spec, [(link.switch_port, link.rate) for link in plan.links]),
        "plain": [] if spec.offloads else [link.switch_port for link in plan.links],
    }


def _host_links(spec: LocalSpec, plan: Topology, host: str, index: int) -> list[str]:
    lines = []
    for rail, link in enumerate(plan.links_of(host)):
        peer = f"peer name {link.device} mtu {spec.mtu} address {mac_address(index, rail)} netns {{pid[{host}]}}"
        if spec.fabric is None:
            lines.append(f"link add {link.switch_port} mtu {spec.mtu} type veth {peer}")
            lines.append(f"link set {link.switch_port} master {bridge_name(rail)} up")
        else:
            lines.append(f"link add {_switch_end(spec, plan, link.switch, link.switch_port)} type veth {peer}")
    return lines


def _switch_end(spec: LocalSpec, plan: Topology, switch: str, port: str) -> str:
    mac = fabric_routes.port_mac(plan, switch, port)
    return f"name {port} mtu {spec.mtu} address {mac} netns {{pid[{switch}]}}"


def _set_up_switch(setup: NodeSetup, spec: LocalSpec, plan: Topology) -> None:
    """Complete the set-up of a leaf or a spine: its links to spines, its ports and its routes.

    Spines are first, since the kernel refuses a leaf's nexthops while the other end of the link is down.
    """
    name, fabric = setup["name"], fabric_routes.fabric_of(plan)
    setup["links"] = [
        f"link add {_switch_end(spec, plan, uplink.leaf, uplink.leaf_port)} type veth"
        f" peer {_switch_end(spec, plan, uplink.spine, uplink.spine_port)}"
        for uplink in fabric.uplinks_of(name)
    ]
    ports = [(port, rate) for switch, port, rate in plan.switch_ports if switch == name]
    setup["first"] = name in fabric.spines
    lines = fabric_routes.leaf_lines if name in fabric.leaves else fabric_routes.spine_lines
    setup["ip"] = ["link set lo up", *(f"link set {port} up" for port, _ in ports), *lines(plan, name)]
    setup["tc"] = _shaped(spec, ports)
    setup["plain"] = [] if spec.offloads else [port for port, _ in ports]
    setup["sysctls"] = {
        "net.ipv4.ip_forward": 1,
        "net.ipv4.conf.all.rp_filter": 0,
        **{f"net.ipv4.conf.{port}.rp_filter": 0 for port, _ in ports},
        **{f"net.ipv4.conf.{port}.send_redirects": 0 for port, _ in ports},
        **multipath_sysctls(fabric.seed),
    }


def multipath_sysctls(seed: int | None) -> dict[str, int]:
    """Return the settings by which a leaf chooses by a packet's own 5-tuple, with this seed where the kernel has one.

    By policy 1 (layer 4) the kernel takes the hash that a packet brings along. In namespaces of one kernel that is the
    sending socket's, a random number that also changes when TCP retransmits; policy 3 (custom fields, Linux 5.14)
    computes it from the packet (net/ipv4/route.c, fib_multipath_hash).
    """
    settings = {"net.ipv4.fib_multipath_hash_policy": 3, "net.ipv4.fib_multipath_hash_fields": FIVE_TUPLE}
    if seed is not None and takes_seed():
        settings["net.ipv4.fib_multipath_hash_seed"] = seed
    return settings


def takes_seed() -> bool:
    """Return whether this kernel's choice among routes takes a seed (Linux 6.11)."""
    return Path("/proc/sys/net/ipv4/fib_multipath_hash_seed").exists()


def _know_each_other(nodes: Sequence[NodeSetup], plan: Topology) -> None:
    """Add permanent neighbour entries: a host sends to all others by way of its leaf, and a leaf knows its hosts."""
    addresses = {host.name: host.address for host in plan.hosts}
    setups = {node["name"]: node for node in nodes}
    line = "neigh replace %s lladdr %s dev %s nud permanent"
    for index, link in enumerate(plan.links, 1):
        mac = fabric_routes.port_mac(plan, link.switch, link.switch_port)
        others = [address for host, address in addresses.items() if host != link.host]
        setups[link.host]["ip"] += [line % (address, mac, link.device) for address in others]
        setups[link.switch]["ip"].append(line % (addresses[link.host], mac_address(index, 0), link.switch_port))


def _addressed(rail: Rail, spec: LocalSpec) -> list[str]:
    """Return commands that bring up a device with its address; its connections use the testbed's congestion control.

    Where time is dilated their least retransmission time-out is so, too. Either is an attribute of routes, since a
    sysctl would need the machine's root to allow it. The route to the host itself too: ranks of one host meet by its
    address; in IPv6 that one has a metric of 0, which nobody but the kernel can give. An address of IPv6 is used at
    once, without asking who else has it.
    """
    lines = [
        f"addr add {rail.address}/{rail.prefix} dev {rail.device}" + (" nodad" if spec.ip == 6 else ""),
        f"link set {rail.device} up",
    ]
    tcp = [] if spec.congestion is None else [f"congctl {spec.congestion}"]
    tcp += [f"rto_min {LEAST_RTO_MS * spec.dilation}ms"] if spec.dilation > 1 else []
    if not tcp:
        return lines
    if spec.ip == 6:
        return [*lines, f"route replace {rail.network} dev {rail.device} proto kernel metric 256 {' '.join(tcp)}"]
    attributes = f"dev {rail.device} proto kernel scope {{}} src {rail.address} {' '.join(tcp)}"
    return [
        *lines,
        f"route replace {rail.network} {attributes.format('link')}",
        f"route replace table local local {rail.address} {attributes.format('host')}",
    ]


def _node_files(node: Node, keys: Keys, *, enter: bool) -> dict[str, tuple[int, str]]:
    program = shlex.join([sys.executable, "-I", "-S", f"{SSHD_FOLDER}/enter"])
    config = [
        "Port 22",
        "ListenAddress 127.0.0.1",
        *(f"ListenAddress {address}" for address in node.addresses),
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
    entrance = {f"{SSHD_FOLDER}/enter": (0o600, _ENTER.read_text())} if enter else {}
    return {
        **entrance,
        f"{SSHD_FOLDER}/config": (0o600, "\n".join(config) + "\n"),
        f"{SSHD_FOLDER}/host_key": (0o600, keys.host_private),
        f"{SSHD_FOLDER}/authorized_keys": (0o600, keys.user_public + "\n"),
    }


def _shared_files(plan: Topology) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Return files that replace this machine's on all nodes (host names, accounts, shells), and other bind mounts."""
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
