"""Container runtimes, podman and docker: command lines, checks, and errors with remedies."""

from __future__ import annotations

import csv
import io
import os
import re
import resource
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import DeadlineExceeded, TestbedError
from orchestrator.core.machines import packages
from orchestrator.testbed.local import netns_needs

Name = Literal["podman", "docker"]

# What root in a container may do, named so that both runtimes give the same: what either gives by default, and settings
# of its own network, captures, and processes that come first.
CAPABILITIES = (
    *("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP"),
    *("SETUID", "SYS_CHROOT", "NET_ADMIN", "NET_RAW", "SYS_NICE"),
)
LABEL = "orch.run"  # every container of ours has it, with the id of its run
_OLDEST: Mapping[str, tuple[int, int]] = MappingProxyType({"podman": (3, 0), "docker": (20, 10)})
_ASK_S = 30.0
_OWN = "/run/orch-podman"  # of each host of this machine, in memory
_MOST_PROCESSES = 32768  # podman lowers its own hard limit to that, and none may be raised
_UNIFIED = Path("/sys/fs/cgroup/unified")
# A pattern of what a runtime prints, and what mends it.
_REMEDIES = (
    (r"permission denied.*docker.*sock|dial unix .*permission denied", "run with sudo"),
    (
        r"(?i)cannot connect to the docker daemon|is the docker daemon running|docker\.sock: connect",
        "start it: sudo systemctl start docker, or as root: dockerd",
    ),
    (r"cgroups in hybrid mode", "install runc, which podman is then told to use: " + packages.remedy("runc")),
    (
        r"exec: \"[^\"]*\": |executable file .*not found|no such file or directory.*exec",
        "give the image a Python, 3.8 or later, or say with `python:` where it has one",
    ),
    (r"(?i)exec format error", "take an image that is made for this machine's processors"),
    (r"(?i)no space left", "make room where {runtime} keeps its images: {runtime} system df tells what takes it"),
    (
        r"(?i)no such image|image not known|unable to find image|does not resolve|did not resolve",
        "get or build the image first: `{runtime} pull IMAGE`, `{runtime} build -t IMAGE .`",
    ),
    (r"(?i)newuidmap|no subuid ranges|insufficient UIDs", "give the user a range in /etc/subuid, or run with sudo"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """A container runtime on this machine: its program, and the options that go before every command."""

    name: str
    program: str
    options: tuple[str, ...] = ()

    def argv(self, *words: str) -> list[str]:
        """Return a command line of the runtime."""
        return [self.program, *self.options, *words]

    def ask(self, *words: str, deadline: Deadline, data: bytes | None = None) -> str:
        """Run a command and return its standard output; TestbedError with a remedy when it fails."""
        try:
            done = subprocess.run(
                self.argv(*words),
                input=data if data is not None else b"",
                capture_output=True,
                check=False,
                timeout=max(deadline.remaining, 1e-3),
                env=environment(),
                cwd="/",
                start_new_session=True,  # Ctrl-C is not to cut it off in the midst
            )
        except subprocess.TimeoutExpired as error:
            raise DeadlineExceeded(f"gave up waiting for {self.name} {words[0]}") from error
        except OSError as error:
            raise TestbedError(f"cannot start {self.name}: {error}", hint=packages.remedy(self.name)) from error
        said = done.stderr.decode(errors="replace")
        if done.returncode != 0:
            raise refusal(self.name, f"{self.name} {words[0]} failed", said)
        return done.stdout.decode(errors="replace")

    def version(self, deadline: Deadline) -> str:
        """Return the version of what runs the containers, such as "4.3.1": docker's daemon, or podman itself."""
        form = "{{.Server.Version}}" if self.name == "docker" else "{{.Client.Version}}"
        return self.ask("version", "--format", form, deadline=deadline).strip()

    def enter_users(self) -> tuple[str, ...]:
        """Return the prefix of a command that enters the containers' user namespace as its root; empty for root."""
        return () if os.geteuid() == 0 else tuple(self.argv("unshare", "--"))

    def has_image(self, image: str, deadline: Deadline) -> bool:
        """Return whether an image lies here; none is ever pulled."""
        return bool(self.ask("images", "--quiet", image, deadline=deadline).split())

    def of_ours(self, deadline: Deadline, run: str = "") -> dict[str, str]:
        """Return our containers that are there, running or not, or of one run alone: id by name."""
        label = f"{LABEL}={run}" if run else LABEL
        said = self.ask(
            "ps",
            "--all",
            "--no-trunc",
            "--filter",
            f"label={label}",
            "--format",
            "{{.Names}} {{.ID}}",
            deadline=deadline,
        )
        return {line.split()[0]: line.split()[1] for line in said.splitlines() if line.strip()}


def shared_storage(deadline: Deadline) -> str:
    """Return a storage.conf for podman on a local host: it sees this machine's images, and keeps its own state.

    With this machine's state it would take the other hosts' containers, whose processes it cannot see, for dead.
    """
    form = "{{.Store.GraphDriverName}} {{.Store.GraphRoot}}"
    driver, _, folder = detected("podman").ask("info", "--format", form, deadline=deadline).strip().partition(" ")
    return (
        f'[storage]\ndriver = "{driver}"\ngraphroot = "{_OWN}/graph"\nrunroot = "{_OWN}/run"\n'
        f'[storage.options]\nadditionalimagestores = ["{folder}"]\n'
    )


def refusal(name: str, what: str, said: str, *, node: str | None = None) -> TestbedError:
    """Return the error of a failed runtime with what it printed, and a remedy where one is known."""
    return TestbedError(what, node=node, tail=said, hint=remedy(name, said))


def remedy(name: str, said: str) -> str | None:
    """Return the remedy for a runtime's error message; None where none is known."""
    for pattern, remedy in _REMEDIES:
        if re.search(pattern, said):
            return remedy.format(runtime=name)
    return None


def limits() -> list[str]:
    """Return options with this process's limits of open files and processes, since none may be raised."""
    _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
    _, processes = resource.getrlimit(resource.RLIMIT_NPROC)
    most = _MOST_PROCESSES if processes == resource.RLIM_INFINITY else min(processes, _MOST_PROCESSES)
    known = [] if files == resource.RLIM_INFINITY else ["--ulimit", f"nofile={files}:{files}"]
    return [*known, "--ulimit", f"nproc={most}:{most}"]


def mount(source: str, target: str, *, writable: bool = False) -> list[str]:
    """Return options that mount a folder of this machine in a container."""
    fields = ["type=bind", f"src={source}", f"dst={target}", *([] if writable else ["readonly"])]
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(fields)
    return ["--mount", text.getvalue()]


def rights(capabilities: Iterable[str] = CAPABILITIES) -> list[str]:
    """Return options that give exactly these capabilities, without confinement that forbids the network's set-up."""
    given = [word for name in capabilities for word in ("--cap-add", name)]
    return ["--cap-drop", "all", *given, "--security-opt", "label=disable", "--security-opt", "apparmor=unconfined"]


def problems(name: str) -> list[tuple[str, str]]:
    """Return what keeps a runtime from running containers here, each as (what, remedy); none when it can."""
    program = netns_needs.find_program(name)
    if program is None:
        remedy_here = packages.own_remedy(name, packages.remedy(name), packages.local_family())
        return [(f"the program {name} is not installed", remedy_here)]
    if name == "docker" and os.geteuid() != 0:
        return [
            (
                "hosts that docker runs belong to root, who alone can plug them into a switch",
                "run with sudo, or take podman",
            )
        ]
    runtime = detected(name)
    try:
        said = runtime.version(Deadline.after(_ASK_S))
    except (TestbedError, DeadlineExceeded) as error:
        said = error.tail.splitlines()[-1] if error.tail else error.message
        return [(f"{name} does not answer: {said}", error.hint or f"see what `{name} info` says")]
    version = tuple(map(int, re.findall(r"\d+", said)[:2]))
    if version < _OLDEST[name]:
        least = ".".join(map(str, _OLDEST[name]))
        return [(f"{name} {said} is too old", f"install {name} {least} or later")]
    if name == "podman" and _hybrid() and not runtime.options:
        lack = "cgroups are in hybrid mode here, which crun cannot use, and runc is not installed"
        return [(lack, packages.own_remedy("runc", packages.remedy("runc"), packages.local_family()))]
    return []


def able(name: str) -> Runtime:
    """Return a runtime that can run containers here; TestbedError with all that keeps it from that."""
    lacking = problems(name)
    if lacking:
        reasons = "; ".join(what for what, _ in lacking)
        raise TestbedError(f"hosts cannot be containers here: {reasons}", hint="; ".join(hint for _, hint in lacking))
    return detected(name)


def detected(name: str) -> Runtime:
    """Return a runtime as it is called here; TestbedError where it is not installed."""
    program = netns_needs.find_program(name)
    if program is None:
        ((what, hint),) = problems(name)
        raise TestbedError(what, hint=hint)
    runc = netns_needs.find_program("runc") if name == "podman" and _hybrid() else None
    return Runtime(name=name, program=program, options=("--runtime", runc) if runc else ())


def _hybrid() -> bool:
    """Return whether both versions of cgroups are in use, which crun refuses."""
    return _UNIFIED.is_dir()


def environment() -> dict[str, str]:
    """Return this process's environment with the sbin folders in PATH, where the runtime's helpers may lie."""
    return {**os.environ, "PATH": netns_needs.search_path(), "LC_ALL": "C"}
