"""What an agent says on its own account, as events, and its refusals, as errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from orchestrator.core.errors import (
    AgentError,
    BadAnswer,
    DeadlineExceeded,
    LockedError,
    NeverStartedError,
    OrchError,
    shortened,
)
from orchestrator.core.lock import Holder, holder_text
from orchestrator.remote.answers import AgentEvent, LineRead, ProcessExited
from orchestrator.remote.replies import Fields

_UNWRITABLE = "let the user write there, or name another folder in `work` of the inventory"
_HINTS = {
    "missing": "install it on the node, or name it by its path",
    "full": "make room there, or name another folder in `work:`",
    "unwritable": _UNWRITABLE,
    "folder": _UNWRITABLE,
    "noexec": "let `work` of the node be on a file system from which programs may be started",
}


def events(node: str, header: Mapping[str, object]) -> Iterator[AgentEvent]:
    """What an agent says on its own account."""
    fields = Fields(header, of="nothing (an event)", node=node)
    kind, name, wall_ns = header["event"], fields.text("name"), fields.integer("wall_ns")
    if kind == "exit":
        yield ProcessExited(node, name, fields.integer("status"), wall_ns)
    elif kind == "lines":
        for text in fields.texts("lines"):
            yield LineRead(node, name, text, wall_ns)
    else:
        raise BadAnswer(f"an event of unknown kind: {str(kind)[:30]}", node=node)


def refusal(node: str, reply: Mapping[str, object], argv: Sequence[str] | None) -> OrchError:
    """The error that a refusal of a request is for whoever asked."""
    fields = Fields(reply, of="a request, a refusal", node=node)
    message, kind = shortened(fields.text("error")), fields.text_or_none("kind")
    tail = fields.text_or_none("tail") or ""
    words = fields.texts("argv") if reply.get("argv") else argv
    if kind == "locked":
        holder = fields.inner("holder").words(*Holder.__annotations__) if reply.get("holder") else {}
        return LockedError(f"held by {shortened(holder_text(holder))}", node=node)
    if kind == "timeout":
        return DeadlineExceeded(message, node=node, argv=words, tail=tail)
    hint = _HINTS.get(kind or "")
    sort = NeverStartedError if kind == "unknown" else AgentError
    error = sort(message, node=node, argv=words, tail=tail, hint=hint)
    if reply.get("undo_failed"):
        said = fields.inner("undo_failed").text_or_none("tail")
        error.hint = f"the change could not be taken back either: {said}"
    return error
