"""What a host has of an image that containers of launches are made of, as its agent finds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.agents.agent.messages import requests
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import AgentError
from orchestrator.parts.launch import Container, Requirement
from orchestrator.remote.answers import Finding, ImageFound
from orchestrator.remote.connection import Connection
from orchestrator.remote.launch_request import container as as_sent


def look(
    connection: Connection, container: Container, needs: Sequence[Requirement], deadline: Deadline, *, storage: str
) -> list[Finding]:
    """What there is of an image and, of these needs, in it; one of the kind "image" says which very one it is.

    `storage` is the text of podman's storage.conf for hosts that have none of their own, else empty.
    """
    values: requests.Image = {
        "container": as_sent(container),
        "modules": [need.what for need in needs if need.kind == "module"],
        "programs": [need.what for need in needs if need.kind == "program"],
        "storage": storage or None,
    }
    try:
        fields = connection.ask("image", deadline, values).fields
    except AgentError as error:
        return [_refused(need, error) for need in needs]
    found = []
    for need in needs:
        if need.kind == "image":
            one = ImageFound(fields.text("image"), fields.text("version"), fields.text("python"))
            found.append(Finding(need, True, one.id, image=one))
            continue
        there, detail = fields.inner(f"{need.kind}s").verdict(need.what)
        found.append(Finding(need, there, detail))
    return found


def _refused(need: Requirement, error: AgentError) -> Finding:
    """The image lacks, with why; of what is in it nothing is known, and that is not one more thing to mend."""
    if need.kind != "image":
        return Finding(need, True, "")
    hint = error.hint or need.remedy
    return Finding(replace(need, remedy=hint), False, error.message)
