"""What a host has of an image that containers of launches are made of, as its agent finds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from orchestrator.agents.agent.containers import ImageFound
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import AgentError, BadAnswer
from orchestrator.parts.launch import Container, Requirement
from orchestrator.remote.answers import Finding
from orchestrator.remote.connection import Connection


def look(
    connection: Connection, container: Container, needs: Sequence[Requirement], deadline: Deadline, *, storage: str
) -> list[Finding]:
    """What there is of an image and, of these needs, in it; one of the kind "image" says which very one it is.

    `storage` is the text of podman's storage.conf for hosts that have none of their own, else empty.
    """
    values = {
        "container": msgspec.to_builtins(container),
        "modules": [need.what for need in needs if need.kind == "module"],
        "programs": [need.what for need in needs if need.kind == "program"],
        "storage": storage or None,
    }
    try:
        image = connection.ask("image", deadline, values).read(ImageFound)
    except AgentError as error:
        return [_refused(need, error) for need in needs]
    found = []
    for need in needs:
        if need.kind == "image":
            found.append(Finding(need, True, image.image, image=image))
            continue
        looked_for = image.modules if need.kind == "module" else image.programs
        if need.what not in looked_for:
            raise BadAnswer(f"its agent's answer to 'image' lacks {need.what!r}", node=connection.node)
        there, detail = looked_for[need.what]
        found.append(Finding(need, there, detail))
    return found


def _refused(need: Requirement, error: AgentError) -> Finding:
    """The image lacks, with why; of what is in it nothing is known, and that is not one more thing to mend."""
    if need.kind != "image":
        return Finding(need, True, "")
    hint = error.hint or need.remedy
    return Finding(replace(need, remedy=hint), False, error.message)
