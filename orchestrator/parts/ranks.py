"""Bring collectors to a job's ranks: by a command around each rank, or by the process ids of ranks that run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from orchestrator.parts.launch import Launch, Wrapper

_PROGRAM = Path(__file__).parents[1] / "agents" / "wrapped_rank.py"
_OWN_MEMORY = 2 * 9e6  # bytes of the two processes of `_PROGRAM`, and some for the wrapper
_PID = re.compile(r"\{pid of ([A-Za-z0-9][A-Za-z0-9._-]*)\}")


def wrapped(rank: Launch, wrapper: Wrapper, *, part: str, python: str) -> Launch:
    """Return a rank's launch with a command around it, for the collector with this label ("collector.time").

    `python` is the interpreter where the rank runs: its container's, or its node's.
    """
    folder = folder_of(part)
    count = str(len(wrapper.argv))
    return replace(
        rank,
        argv=(python, "-I", "-S", "-B", _PROGRAM.name, folder, count, *wrapper.argv, *rank.argv),
        files={
            **rank.files,
            _PROGRAM.name: _PROGRAM,
            **{f"{folder}/{name}": content for name, content in wrapper.files.items()},
        },
        footprint=replace(rank.footprint, memory=rank.footprint.memory + _OWN_MEMORY),
        wrapped_by=(*rank.wrapped_by, part),
    )


def folder_of(part: str) -> str:
    """Return the folder, below a rank's, of the collector with this label: the collector's name."""
    return part.partition(".")[2]


def own_argv(rank: Launch) -> tuple[str, ...]:
    """Return a rank's own command, without those around it."""
    argv = rank.argv
    for _ in rank.wrapped_by:
        before = argv.index(_PROGRAM.name) + 2  # the folder, and then how many words the command around it has
        argv = argv[before + 1 + int(argv[before]) :]
    return argv


def pid_of(rank: Launch) -> str:
    """Return what stands in a command line for the process id that a rank of the same node will have."""
    return f"{{pid of {rank.name}}}"


def with_pids(launch: Launch, pids: Mapping[tuple[str, str], int]) -> Launch:
    """Return a launch with process ids, by node and name of what runs there, in the place of `pid_of` in its argv."""

    def pid(match: re.Match[str]) -> str:
        return str(pids[launch.node, match[1]])

    return replace(launch, argv=tuple(_PID.sub(pid, word) for word in launch.argv))
