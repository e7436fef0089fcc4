"""How an agent is asked to start a launch, and what is said when it could not."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import LaunchError, OrchError
from orchestrator.parts import secret_env
from orchestrator.parts.launch import Launch

SENT = ("name", "argv", "gate", "follow", "privileged", "container")  # of a launch as it is planned


def values(launch: Launch, deadline: Deadline, *, run_key: str, secrets: Mapping[str, str]) -> dict[str, object]:
    """Return what the agent has to know of a launch whose files lie in its folder: the keywords of its `start`."""
    given = {launch.run_key: run_key} if launch.run_key else {}
    return {
        **{name: msgspec.to_builtins(getattr(launch, name)) for name in SENT},
        "env": {**launch.env, **secret_env.filled(launch, secrets), **given},
        "ready": {"kind": type(launch.ready).__name__.lower(), **msgspec.to_builtins(launch.ready)},
        "ready_within_s": min(launch.ready_within_s, deadline.remaining),
    }


def refused(launch: Launch, error: OrchError | OSError) -> LaunchError:
    """Why a launch does not run: its files could not be put, or it did not start or get ready."""
    if isinstance(error, OSError):
        return LaunchError(f"files of {launch.name} cannot be written on the node: {error}", node=launch.node)
    return LaunchError(
        f"{launch.name} {error.message}" if error.tail or error.argv else f"{launch.name}: {error.message}",
        node=launch.node,
        argv=launch.argv,
        tail=error.tail,
        hint=error.hint,
    )
