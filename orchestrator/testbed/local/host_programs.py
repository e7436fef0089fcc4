"""Checks which programs the hosts of a local testbed have: this machine's, or an image's."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from orchestrator.core.deadline import Deadline
from orchestrator.core.machines import packages
from orchestrator.testbed.local import netns_needs
from orchestrator.testbed.local.runtimes import Runtime, environment, limits

_SH = """
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
cat /etc/os-release 2>/dev/null
for name; do command -v "$name" >/dev/null && echo "there $name"; done
:
"""
_ASK_S = 60.0


NOT_FOUND = 127  # what runtimes, as shells, end with where there is no such program


class ProgramSource(Protocol):
    """The source of a host's programs, which can be asked before any host is up."""

    @property
    def name(self) -> str: ...

    def without(self, programs: Sequence[str]) -> list[str]:
        """Return which of these programs are missing."""

    def run(self, argv: Sequence[str], *, within_s: float) -> subprocess.CompletedProcess[str]:
        """Run a program from there; FileNotFoundError where there is none of that name."""

    def remedy(self, what: str, common: str) -> str:
        """Return the remedy for the missing program `what`, for which `common` is the usual one."""


@dataclass(frozen=True, slots=True)
class ThisMachine:
    """This machine, as every host without an image of its own sees it."""

    name: str = "this machine"

    def without(self, programs: Sequence[str]) -> list[str]:
        return [program for program in programs if netns_needs.find_program(program) is None]

    def run(self, argv: Sequence[str], *, within_s: float) -> subprocess.CompletedProcess[str]:
        home = os.path.expanduser("~")  # noqa: PTH111 - as the shell has it
        return _run(argv, {"PATH": netns_needs.search_path(), "LANG": "C.UTF-8", "HOME": home}, within_s)

    def remedy(self, what: str, common: str) -> str:
        return packages.own_remedy(what, common, packages.local_family())


class InImage:
    """The user's image, asked in containers that are removed at once."""

    def __init__(self, runtime: Runtime, image: str) -> None:
        self._runtime, self._image = runtime, image

    @property
    def name(self) -> str:
        return f"the image {self._image}"

    def without(self, programs: Sequence[str]) -> list[str]:
        said = self._runtime.ask(
            "run", *self._words("/bin/sh", "-c", _SH, "sh", *programs), deadline=Deadline.after(_ASK_S)
        )
        there = {line.removeprefix("there ") for line in said.splitlines() if line.startswith("there ")}
        return [program for program in programs if program not in there]

    def run(self, argv: Sequence[str], *, within_s: float) -> subprocess.CompletedProcess[str]:
        done = _run(self._runtime.argv("run", *self._words(*argv)), environment(), within_s)
        if done.returncode == NOT_FOUND:
            raise FileNotFoundError(argv[0])
        return done

    def remedy(self, what: str, common: str) -> str:
        own = packages.own_remedy(what, common, self._os_release)
        return f"build it into {self.name}: {own.removeprefix('sudo ')}"

    @cached_property
    def _os_release(self) -> str:
        return self._runtime.ask("run", *self._words("/bin/sh", "-c", _SH), deadline=Deadline.after(_ASK_S))

    def _words(self, program: str, *words: str) -> list[str]:
        return [
            "--rm",
            "--pull",
            "never",
            "--network",
            "none",
            "--user",
            "0:0",
            "--workdir",
            "/",
            *limits(),
            "--entrypoint",
            program,
            self._image,
            *words,
        ]


def _run(argv: Sequence[str], env: Mapping[str, str], within_s: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=within_s, check=False, cwd="/"
    )
