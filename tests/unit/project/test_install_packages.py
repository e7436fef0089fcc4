"""How system packages are installed: what is missing, by which command, as whom; on stubs of package managers."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "playbooks/hosts/install-packages"
TABLE = [
    line.split(maxsplit=4)
    for line in (ROOT / "playbooks/hosts/packages.txt").read_text().splitlines()
    if not line.startswith("#")
]
# Writes down how it was called, and installs nft when it is asked to install.
MANAGER = """#!/bin/bash
echo "$(basename "$0") $* RUNLEVEL=$RUNLEVEL" >>"$LOG"
[[ $* = *install* ]] || exit 0
[ -z "$BROKEN" ] || { echo "no space left on device" >&2; exit 100; }
[ -n "$EMPTY" ] || ln -sf /bin/true "$(dirname "$0")/nft"
"""
SYSTEMCTL = """#!/bin/bash
[ "$1" = is-system-running ] && echo running && exit
echo "systemctl $*" >>"$LOG"
"""


class Machine:
    """A folder of programs that stands for a machine: all that the sets `run` and `tests` need, but nftables."""

    def __init__(self, folder: Path) -> None:
        self.programs = folder / "programs"
        self.programs.mkdir()
        self.log = folder / "log"
        self.script = SCRIPT
        for program in {program for _, program, *_ in TABLE}:
            if program != "nft" and not program.startswith("python:"):
                (self.programs / program).symlink_to("/bin/true")

    def has(self, *names: str, text: str = MANAGER) -> Machine:
        for name in names:
            program = self.programs / name
            program.unlink(missing_ok=True)
            program.write_text(text)
            program.chmod(0o755)
        return self

    def lacks(self, *names: str) -> Machine:
        for name in names:
            (self.programs / name).unlink()
        return self

    def install(self, *words: str, user: int | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        settings = {"ORCH_PROGRAMS": str(self.programs), "PATH": f"{self.programs}:{os.environ['PATH']}", **env}
        return subprocess.run(
            [str(self.script), *words],
            env={**os.environ, "LOG": str(self.log), **settings},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            user=user,
        )

    def called(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, or it would ask for sudo")


def test_where_nothing_is_missing_nothing_is_said_or_done(machine: Machine) -> None:
    machine.has("apt-get", "nft")
    done = machine.install("run")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert machine.called() == []


@pytest.mark.parametrize(
    ("manager", "command"),
    [
        ("apt-get", "apt-get update && apt-get install -y --no-install-recommends nftables"),
        ("dnf", "dnf install -y nftables"),
        ("yum", "yum install -y nftables"),
    ],
)
def test_it_says_what_each_package_is_for_and_the_command(machine: Machine, manager: str, command: str) -> None:
    done = machine.has(manager).install("--print", "run")
    assert done.returncode == 1
    assert "nftables is missing (nft: conditions `loss` and `ecn`)" in done.stdout
    assert f"would run as root: {command}\n" in done.stdout
    assert machine.called() == []


def test_each_family_has_its_own_names_and_what_has_none_is_only_told(machine: Machine) -> None:
    machine.has("dnf").lacks("tc", "newuidmap", "newgidmap", "tshark", "prometheus")
    done = machine.install("--print", "run", "tests")
    assert "would run as root: dnf install -y iproute-tc shadow-utils nftables wireshark-cli\n" in done.stdout
    assert "prometheus is missing, and this system has no package of it" in done.stdout


def test_ubuntu_is_not_asked_for_what_only_debian_has(machine: Machine, tmp_path: Path) -> None:
    machine.has("apt-get").lacks("chromium-headless-shell")
    release = tmp_path / "os-release"
    release.write_text('NAME="Ubuntu"\nID=ubuntu\nID_LIKE=debian\n')
    done = machine.install("--print", "run", "tests", ORCH_OS_RELEASE=str(release))
    assert "chromium-headless-shell is missing, and this system has no package of it" in done.stdout
    assert "install -y --no-install-recommends nftables\n" in done.stdout
    release.write_text("ID=debian\n")
    done = machine.install("--print", "run", "tests", ORCH_OS_RELEASE=str(release))
    assert "--no-install-recommends nftables chromium-headless-shell\n" in done.stdout


def test_only_the_sets_asked_for_are_looked_at(machine: Machine) -> None:
    machine.has("apt-get", "nft").lacks("tshark", "cmake")
    assert machine.install("run").returncode == 0
    assert "tshark" in machine.install("--print", "tests").stdout
    assert "cmake" not in machine.install("--print", "tests").stdout


@as_root
def test_root_installs_without_starting_services(machine: Machine) -> None:
    done = machine.has("apt-get").install("run")
    assert done.returncode == 0, done.stderr
    assert machine.called() == [
        "apt-get update -qq RUNLEVEL=1",
        "apt-get install -y -q --no-install-recommends nftables RUNLEVEL=1",
    ]
    assert machine.install("run").stdout == ""


@as_root
def test_under_systemd_services_are_masked_while_they_are_installed_and_disabled_after_it(machine: Machine) -> None:
    machine.has("apt-get").has("systemctl", text=SYSTEMCTL).lacks("sshd")
    machine.install("run", EMPTY="yes")
    assert [line.partition(" RUN")[0] for line in machine.called()] == [
        "systemctl --quiet mask --runtime ssh.service ssh.socket",
        "apt-get update -qq",
        "apt-get install -y -q --no-install-recommends nftables openssh-server",
        "systemctl --quiet unmask --runtime ssh.service ssh.socket",
        "systemctl --quiet disable ssh.service ssh.socket",
    ]


@as_root
def test_a_failure_is_one_line_with_the_cause_and_the_command_and_leaves_no_mask(machine: Machine) -> None:
    machine.has("apt-get").has("systemctl", text=SYSTEMCTL).lacks("sshd")
    done = machine.install("run", BROKEN="yes")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "failed: no space left on device; let root run: apt-get update && apt-get install" in line
    assert "unmask" in machine.called()[-1]


@as_root
def test_what_is_still_missing_after_the_installation_is_told(machine: Machine) -> None:
    done = machine.has("apt-get").install("run", EMPTY="yes")
    assert done.returncode == 1
    assert "there is still no nft (of nftables)" in done.stderr


@pytest.mark.parametrize(
    ("manager", "told"),
    [("zypper", "names of zypper's packages may differ"), (None, "this machine has none of apt-get, dnf and yum")],
)
def test_where_it_cannot_install_it_names_the_packages(machine: Machine, manager: str | None, told: str) -> None:
    done = machine.has(*([manager] if manager else [])).install("run")
    assert done.returncode == 1
    assert f"{told}; let root install: nftables" in done.stderr
    assert machine.called() == []


@as_root
def test_without_sudo_an_ordinary_user_is_told_what_root_has_to_run() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        machine = Machine(Path(folder)).has("apt-get")
        machine.script = Path(shutil.copy(SCRIPT, folder))
        shutil.copy(SCRIPT.with_name("packages.txt"), folder)
        done = machine.install("run", user=65534, PYTHON="/usr/bin/python3")
    assert done.returncode == 1
    assert "there is no sudo; let root run: apt-get update && apt-get install" in done.stderr


def test_for_an_interpreter_that_does_not_run_nothing_is_installed(machine: Machine) -> None:
    done = machine.has("apt-get").install("run", PYTHON="/bin/false")
    assert done.returncode == 1
    assert done.stderr.startswith("packages: the interpreter /bin/false does not run")
    assert machine.called() == []


def test_an_unknown_set_is_a_mistake(machine: Machine) -> None:
    done = machine.install("everything")
    assert done.returncode == 2
    assert "there are run, tests, frameworks, podman, docker and slurm" in done.stderr
