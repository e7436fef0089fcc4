"""Name the package that brings a missing program, as the host's own distribution calls it where that is known."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Literal

Family = Literal["debian", "rhel", "suse", "arch"]

OS_RELEASE = ("/etc/os-release", "/usr/lib/os-release")  # the first that is there counts

# Those of playbooks/hosts/packages.txt that hosts are asked for, in Debian's family and RHEL's; a test holds both
# against each other.
NAMES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "ethtool": ("ethtool", "ethtool"),
        "docker": ("docker.io", "moby-engine"),
        "ip": ("iproute2", "iproute"),
        "ip6tables": ("iptables", "iptables-nft"),
        "iperf3": ("iperf3", "iperf3"),
        "iptables": ("iptables", "iptables-nft"),
        "newgidmap": ("uidmap", "shadow-utils"),
        "newuidmap": ("uidmap", "shadow-utils"),
        "nft": ("nftables", "nftables"),
        "munged": ("munge", "munge"),
        "podman": ("podman", "podman"),
        "runc": ("runc", "runc"),
        "slurmctld": ("slurm-wlm", "slurm-slurmctld"),
        "slurmd": ("slurm-wlm", "slurm-slurmd"),
        "srun": ("slurm-wlm", "slurm"),
        "ssh": ("openssh-client", "openssh-clients"),
        "sshd": ("openssh-server", "openssh-server"),
        "sysctl": ("procps", "procps-ng"),
        "tc": ("iproute2", "iproute-tc"),
        "tcpdump": ("tcpdump", "tcpdump"),
        "unshare": ("util-linux", "util-linux"),
    }
)
# Where SUSE and Arch call a package otherwise than Debian does.
_OTHERWISE: Mapping[Family, Mapping[str, str]] = {
    "suse": {"iperf3": "iperf", "ssh": "openssh-clients", "newgidmap": "shadow", "newuidmap": "shadow"},
    "arch": {"newgidmap": "shadow", "newuidmap": "shadow", "ssh": "openssh", "sshd": "openssh", "sysctl": "procps-ng"},
}
_INSTALL: Mapping[Family, str] = {
    "debian": "sudo apt-get install",
    "rhel": "sudo dnf install",
    "suse": "sudo zypper install",
    "arch": "sudo pacman -S",
}
_MEMBERS: Mapping[str, Family] = {
    **dict.fromkeys(("debian", "ubuntu", "raspbian", "linuxmint"), "debian"),
    **dict.fromkeys(("rhel", "fedora", "centos", "rocky", "almalinux", "ol", "amzn"), "rhel"),
    **dict.fromkeys(("suse", "opensuse", "opensuse-leap", "opensuse-tumbleweed", "sles"), "suse"),
    **dict.fromkeys(("arch", "archarm", "manjaro"), "arch"),
}


def remedy(program: str) -> str:
    """Return the command that brings a program, for a host of which it is not known yet what it runs."""
    debian, rhel = NAMES[program]
    return f"{_INSTALL['debian']} {debian} (RHEL's family: {_INSTALL['rhel']} {rhel})"


def own_remedy(program: str, general: str, os_release: str) -> str:
    """Return the `general` remedy of a program, in the words of the host that has this os-release.

    Another remedy stays.
    """
    if program not in NAMES or general != remedy(program):
        return general
    found = family(os_release)
    if found is None:
        return f"install the program {program}"
    debian, rhel = NAMES[program]
    name = rhel if found == "rhel" else _OTHERWISE.get(found, {}).get(program, debian)
    return f"{_INSTALL[found]} {name}"


def family(os_release: str) -> Family | None:
    """Return the family that a distribution says it belongs to, by its ID and then by what it is like.

    None for any other.
    """
    said = dict(line.split("=", 1) for line in os_release.splitlines() if "=" in line and not line.startswith("#"))
    names = [_unquoted(said.get("ID", "")), *_unquoted(said.get("ID_LIKE", "")).split()]
    return next((_MEMBERS[name] for name in names if name in _MEMBERS), None)


def local_family() -> str:
    """Return this machine's os-release; empty where there is none."""
    for path in map(Path, OS_RELEASE):
        if path.is_file():
            return path.read_text(errors="replace")
    return ""


def _unquoted(value: str) -> str:
    try:
        return " ".join(shlex.split(value)).lower()
    except ValueError:  # a quote without its other end
        return ""
