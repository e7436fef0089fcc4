"""The package that has a program, by what distributions say of themselves in os-release."""

from __future__ import annotations

import sys

import pytest

from orchestrator.core.deadline import Deadline
from orchestrator.core.machines import packages
from orchestrator.experiment import feasibility
from orchestrator.parts.launch import Requirement

DEBIAN_12 = """\
PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"
NAME="Debian GNU/Linux"
VERSION_ID="12"
VERSION="12 (bookworm)"
VERSION_CODENAME=bookworm
ID=debian
HOME_URL="https://www.debian.org/"
"""
UBUNTU_22_04 = """\
PRETTY_NAME="Ubuntu 22.04.4 LTS"
NAME="Ubuntu"
VERSION_ID="22.04"
VERSION_CODENAME=jammy
ID=ubuntu
ID_LIKE=debian
UBUNTU_CODENAME=jammy
"""
UBUNTU_24_04 = UBUNTU_22_04.replace("22.04.4", "24.04.1").replace("22.04", "24.04").replace("jammy", "noble")
ROCKY_9 = """\
NAME="Rocky Linux"
VERSION="9.4 (Blue Onyx)"
ID="rocky"
ID_LIKE="rhel centos fedora"
VERSION_ID="9.4"
PLATFORM_ID="platform:el9"
PRETTY_NAME="Rocky Linux 9.4 (Blue Onyx)"
"""
ALMA_8 = """\
NAME="AlmaLinux"
VERSION="8.10 (Cerulean Leopard)"
ID="almalinux"
ID_LIKE="rhel centos fedora"
VERSION_ID="8.10"
PLATFORM_ID="platform:el8"
"""
RHEL_9 = """\
NAME="Red Hat Enterprise Linux"
VERSION="9.4 (Plow)"
ID="rhel"
ID_LIKE="fedora"
VERSION_ID="9.4"
"""
CENTOS_STREAM_9 = """\
NAME="CentOS Stream"
VERSION="9"
ID="centos"
ID_LIKE="rhel fedora"
VERSION_ID="9"
"""
FEDORA = """\
NAME="Fedora Linux"
VERSION="40 (Server Edition)"
ID=fedora
VERSION_ID=40
"""
LEAP = """\
NAME="openSUSE Leap"
VERSION="15.6"
ID="opensuse-leap"
ID_LIKE="suse opensuse"
VERSION_ID="15.6"
"""
AMAZON_2023 = """\
NAME="Amazon Linux"
VERSION="2023"
ID="amzn"
ID_LIKE="fedora"
VERSION_ID="2023"
"""
ARCH = """\
NAME="Arch Linux"
PRETTY_NAME="Arch Linux"
ID=arch
BUILD_ID=rolling
"""
DERIVED = "# a comment with ID=arch\nID='somebodys-own'\nID_LIKE='something ubuntu debian'\n"

DEBIANS = [DEBIAN_12, UBUNTU_22_04, UBUNTU_24_04, DERIVED]
RHELS = [ROCKY_9, ALMA_8, RHEL_9, CENTOS_STREAM_9, FEDORA, AMAZON_2023]
UNKNOWN = ["", "ID=alpine\nVERSION_ID=3.20.1\n", "NAME=nothing\n", 'ID="debian\n', "no equals sign\n"]


def own(program: str, os_release: str) -> str:
    return packages.own_remedy(program, packages.remedy(program), os_release)


@pytest.mark.parametrize("text", DEBIANS)
def test_the_family_of_debian(text):
    assert packages.family(text) == "debian"
    assert own("tc", text) == "sudo apt-get install iproute2"
    assert own("newuidmap", text) == "sudo apt-get install uidmap"


@pytest.mark.parametrize("text", RHELS)
def test_the_family_of_rhel(text):
    assert packages.family(text) == "rhel"
    assert own("tc", text) == "sudo dnf install iproute-tc"
    assert own("ip", text) == "sudo dnf install iproute"
    assert own("iptables", text) == "sudo dnf install iptables-nft"
    assert own("newuidmap", text) == "sudo dnf install shadow-utils"


def test_suse_and_arch():
    assert own("iperf3", LEAP) == "sudo zypper install iperf"
    assert own("nft", LEAP) == "sudo zypper install nftables"
    assert own("nft", ARCH) == "sudo pacman -S nftables"
    assert own("newuidmap", ARCH) == "sudo pacman -S shadow"


@pytest.mark.parametrize("text", UNKNOWN)
def test_any_other_is_told_the_programs_name(text):
    assert packages.family(text) is None
    assert own("tc", text) == "install the program tc"


def test_another_remedy_stays():
    assert packages.own_remedy("tc", "build it", ROCKY_9) == "build it"
    assert packages.own_remedy("mpirun", "orch prepare --only torch", ROCKY_9) == "orch prepare --only torch"


def test_a_host_that_cannot_be_asked_is_told_both():
    assert packages.remedy("ip") == "sudo apt-get install iproute2 (RHEL's family: sudo dnf install iproute)"


def need(what: str, **more: str) -> Requirement:
    more = {"kind": "program", **more}
    return Requirement(node="n1", what=what, needed_by="a test", **more)


def test_this_machine_is_told_its_own_package_manager(monkeypatch):
    monkeypatch.setattr(feasibility.netns_needs, "find_program", lambda _name: None)
    monkeypatch.setattr(packages, "local_family", lambda: ROCKY_9)
    found = {lack.remedy for lack in feasibility.lacking_here([need("nft", remedy=packages.remedy("nft"))])}
    assert {"sudo dnf install nftables", "sudo dnf install iproute-tc"} <= found
    assert not [remedy for remedy in found if "apt" in remedy]


def test_a_host_is_told_its_own_package_manager(connect_agent, monkeypatch, tmp_path):
    (tmp_path / "os-release").write_text(ROCKY_9)
    monkeypatch.setattr(packages, "OS_RELEASE", (str(tmp_path / "none"), str(tmp_path / "os-release")))
    monkeypatch.setattr(packages, "NAMES", {"no-such-program": ("a", "b")})
    wanted = [
        need("no-such-program", remedy=packages.remedy("no-such-program")),
        need("sh", remedy="x"),
        need("no_such_module", kind="module", python=sys.executable, remedy="y"),
    ]
    missed, there, module = connect_agent().check(wanted, Deadline.after(60))
    assert (missed.found, missed.requirement.remedy) == (False, "sudo dnf install b")
    assert (there.found, there.requirement.remedy) == (True, "x")
    assert (module.found, module.requirement.remedy) == (False, "y")
