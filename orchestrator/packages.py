"""What brings a program that a host lacks: its package, by the names of Debian's family and of RHEL's."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

# Those of playbooks/hosts/packages.txt that hosts are asked for; a test holds both against each other.
NAMES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "ethtool": ("ethtool", "ethtool"),
        "ip": ("iproute2", "iproute"),
        "ip6tables": ("iptables", "iptables-nft"),
        "iperf3": ("iperf3", "iperf3"),
        "iptables": ("iptables", "iptables-nft"),
        "newgidmap": ("uidmap", "shadow-utils"),
        "newuidmap": ("uidmap", "shadow-utils"),
        "nft": ("nftables", "nftables"),
        "sshd": ("openssh-server", "openssh-server"),
        "sysctl": ("procps", "procps-ng"),
        "tc": ("iproute2", "iproute-tc"),
        "tcpdump": ("tcpdump", "tcpdump"),
        "unshare": ("util-linux", "util-linux"),
    }
)


def remedy(program: str) -> str:
    """The command that brings a program, for whichever family the host is of."""
    debian, rhel = NAMES[program]
    return f"sudo apt-get install {debian} (RHEL's family: sudo dnf install {rhel})"
