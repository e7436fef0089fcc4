"""How an agent is asked to start a launch, and what is said when it could not."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.agents.agent.messages import requests
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import LaunchError, OrchError
from orchestrator.parts import secret_env
from orchestrator.parts.launch import Container, Exited, Launch, Line, Listening, Ready


def values(launch: Launch, deadline: Deadline, *, run_key: str, secrets: Mapping[str, str]) -> requests.Start:
    """What the agent has to know of a launch whose files lie in its folder."""
    asked: requests.Start = {
        "name": launch.name,
        "argv": list(launch.argv),
        "env": {
            **launch.env,
            **secret_env.filled(launch, secrets),
            **({launch.run_key: run_key} if launch.run_key else {}),
        },
        "ready": _ready(launch.ready),
        "ready_within_s": min(launch.ready_within_s, deadline.remaining),
        "gate": launch.gate,
        "follow": launch.follow,
        "privileged": launch.privileged,
    }
    if launch.container:
        asked["container"] = container(launch.container)
    return asked


def container(wanted: Container) -> requests.Container:
    """A container, as the agent reads it."""
    return {
        "runtime": wanted.runtime,
        "image": wanted.image,
        "python": wanted.python,
        "mounts": [(mount.source, mount.target, mount.writable) for mount in wanted.mounts],
        "gpus": wanted.gpus,
    }


def _ready(ready: Ready) -> requests.Ready:
    if isinstance(ready, Line):
        return {"kind": "line", "pattern": ready.pattern, "file": ready.file}
    if isinstance(ready, Listening):
        return {"kind": "listening", "port": ready.port}
    return {"kind": "exited" if isinstance(ready, Exited) else "started"}


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
