"""Set-up installs every program that our sources start, and CI begins where a new user begins."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from started import programs, skip_reasons
from test_parts import ALL, DATA

from orchestrator.core.machines import packages
from orchestrator.testing import Case
from tests.helpers import skipping

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "playbooks/hosts/packages.txt"
RUNTIMES = ("podman", "docker")
SETS = ("run", "tests", "frameworks", *RUNTIMES, "slurm")

# What every system has that is no more than a shell, coreutils and what installs packages.
ALWAYS = {
    "bash",
    "cat",
    "chown",
    "cp",
    "dd",
    "echo",
    "env",
    "false",
    "grep",
    "head",
    "id",
    "ls",
    "mkdir",
    "printenv",
    "printf",
    "python3",
    "rm",
    "sh",
    "wc",
    "sleep",
    "touch",
    "true",
}
# Programs of hosts that have what no package set of ours brings, and why.
OF_HOSTS = {
    "nvidia-smi": "comes with NVIDIA's driver",
    "kungfu-run": "is built where KungFu is",
    "all_reduce_perf": "is built where nccl-tests are",
    "klist": "is where users log in by Kerberos",
    "perf": "is on hosts whose experiments ask for it",
    "enroot": "is on hosts whose workloads ask for it",
    "sudo": "is what README asks for, and what an inventory asks of its hosts",
}
# made up, or made, by tests; or commands of ours
NO_PROGRAMS = {"capture", "export", "last", "shrink", "study", "train", "prog", "orch-no-such", "orch-no-such-program"}


class Row(NamedTuple):
    set: str
    program: str
    debian: str
    rhel: str
    what: str


def rows() -> list[Row]:
    lines = TABLE.read_text().splitlines()
    return [Row(*line.split(maxsplit=4)) for line in lines if not line.startswith("#")]


def listed(*sets: str) -> set[str]:
    return {row.program for row in rows() if row.set in sets}


def needed(*kinds: str) -> Iterator[str]:
    """Names of the programs that parts of these kinds ask for on any testbed."""
    for kind, name in ALL:
        case = Case(kind=kind, name=name, samples=DATA / name)
        for topology in case.topologies.values() if kind in kinds else ():
            yield from (Path(need.what).name for need in case.made(topology)[1] if need.kind == "program")


def test_every_line_of_the_table_is_whole_and_said_once():
    table = rows()
    assert {row.set for row in table} == set(SETS)
    assert len({(row.set, row.program) for row in table}) == len(table)
    package = re.compile(r"-|[a-z0-9][a-z0-9+.-]+")
    for row in table:
        assert package.fullmatch(row.debian), row
        assert package.fullmatch(row.rhel), row
        assert row.what[0].islower() or row.what[:2].isupper() or row.what.startswith("Horovod"), row


def test_what_conditions_traffic_and_collectors_ask_for_is_installed_for_a_run():
    asked = set(needed("condition", "traffic", "collector"))
    assert {"nft", "iptables", "tcpdump", "iperf3"} <= asked
    assert asked - OF_HOSTS.keys() <= listed("run")


def test_what_workloads_ask_for_is_installed_for_a_run_or_with_the_frameworks():
    assert set(needed("workload")) - OF_HOSTS.keys() <= listed("run", "frameworks")


def _ours(name: str) -> bool:
    """Whether it is sent to hosts: a file, or a program of ranks."""
    return name.endswith(".py") or (ROOT / "workloads/rank" / name.replace(".", "/")).with_suffix(".py").is_file()


@pytest.mark.parametrize("folder", ["orchestrator", "workloads", "cross_traffic"])
def test_what_the_sources_start_is_installed_for_a_run(folder):
    started = programs(ROOT / folder)
    lacking = {name for name in started if not _ours(name)} - ALWAYS - OF_HOSTS.keys()
    known = listed("run", *RUNTIMES, "slurm")  # hosts of other kinds are asked for by name
    assert lacking <= known, {name: started[name] for name in lacking - known}


def test_what_the_tests_start_is_installed_for_them():
    started = programs(ROOT / "tests")
    assert {"tshark", "prometheus", "ssh-keygen", "runuser"} <= started.keys()
    lacking = started.keys() - ALWAYS - NO_PROGRAMS - OF_HOSTS.keys() - listed(*SETS)
    assert not lacking, {name: started[name] for name in lacking}


def test_every_reason_to_skip_says_whether_an_installation_would_mend_it():
    reasons = skip_reasons(ROOT / "tests")
    assert len(reasons) > 10
    for reason, where in reasons.items():
        assert skipping.of_machine(reason) != bool(skipping.INSTALLATION.search(reason)), (reason, where)


def test_hosts_are_told_the_names_of_the_table_for_their_family():
    assert {program: (row.debian, row.rhel) for row in rows() for program in [row.program]}.items() >= (
        packages.NAMES.items()
    )
    assert packages.remedy("tc") == "sudo apt-get install iproute2 (RHEL's family: sudo dnf install iproute-tc)"


def section(heading: str) -> str:
    text = (ROOT / "README.md").read_text()
    return text.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def steps() -> str:
    """What CI does, without comments."""
    return "\n".join(line for line in (ROOT / ".ci/run").read_text().splitlines() if not line.lstrip().startswith("#"))


def test_ci_installs_what_readme_asks_for_and_nothing_else():
    (asked,) = re.findall(r"apt-get install ([a-z0-9 -]+)", section("Two commands"))
    installed = re.findall(r"apt-get install ([^>|;&\n]+)", steps())
    assert [[word for word in line.split() if not word.startswith("-")] for line in installed] == [asked.split()]
    assert "pip install" not in steps()


def test_every_test_is_run_by_a_target_that_ci_calls():
    """`make test` runs what lies in tests, with variants where it is told so."""
    for path in sorted((ROOT / "tests/testbed").glob("test_*.py")):
        assert re.search(r"^pytestmark = [^\]]*\bmark\.testbed\b", path.read_text(), re.MULTILINE), path
    assert "make test VARIANTS=all" in "\n".join(phases())


def test_ci_calls_readmes_commands_as_they_are_written_and_in_their_order():
    written = re.findall(r"^    (make [a-z-]+)$", section("Two commands"), re.MULTILINE)
    assert written == ["make quickstart", "make test"]
    called = [target for phase in phases() for target in re.findall(r"\bmake (?:-C \S+ )?([a-z-]+)", phase)]
    assert [f"make {target}" for target in called[:2]] == written


def phases():
    """What CI runs, phase by phase: a command, or what the function of that name does."""
    said = re.findall(r'^phase "[^"]*" ((?:[^\n]*\\\n)*[^\n]*)$', steps(), re.MULTILINE)
    functions = dict(re.findall(r"^(\w+)\(\) \{(?: [^\n}]*)?\n(.*?)^\}$", steps(), re.MULTILINE | re.DOTALL))
    return [re.sub(r"apt-get .*", "", functions.get(command, command)) for command in said]
