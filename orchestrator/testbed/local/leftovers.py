"""Containers whose run has gone, found by their label and by the lock on their owner's folder."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from pathlib import Path

from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import OrchError, TestbedError
from orchestrator.testbed.local import containers, private_folder, runtimes
from orchestrator.testbed.local.containers import OWNER
from orchestrator.testbed.local.runtimes import LABEL, Runtime

_LIMIT_S = 60.0


def remove(*, images: bool) -> tuple[list[str], list[str]]:
    """Remove them of every runtime that is here, and our own images if asked for; what was done, and what failed."""
    done: list[str] = []
    failed: list[str] = []
    for name in typing.get_args(runtimes.Name):
        if runtimes.problems(name):
            continue  # what cannot run containers has none
        try:
            done += _remove_of(runtimes.detected(name), images=images)
        except OrchError as error:
            failed.append(f"could not remove containers of {name}: {error.message}")
    return done, failed


def _remove_of(runtime: Runtime, *, images: bool) -> Iterator[str]:
    deadline = Deadline.after(_LIMIT_S)
    left = left_behind(runtime, deadline)
    containers.remove(runtime, left, deadline)
    for name, run in left.items():
        yield f"removed {runtime.name}'s container {name} of run {run}"
    for image in containers.images(runtime, deadline) if images else ():
        runtime.ask("rmi", "--force", image, deadline=deadline)
        yield f"removed {runtime.name}'s image {image}"


def left_behind(runtime: Runtime, deadline: Deadline) -> dict[str, str]:
    """Containers of ours whose owner has gone: run by name."""
    found = {}
    for name, number in runtime.of_ours(deadline).items():
        form = f'{{{{index .Config.Labels "{LABEL}"}}}} {{{{index .Config.Labels "{OWNER}"}}}}'
        try:
            run, _, folder = runtime.ask("inspect", "--format", form, number, deadline=deadline).strip().partition(" ")
        except TestbedError:
            continue  # it has just gone
        if folder and not private_folder.owned(Path(folder)):
            found[name] = run
    return found
