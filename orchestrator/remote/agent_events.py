"""What an agent says on its own account, as events, and its refusals, as errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from orchestrator.agents.agent.launches import ExitEvent, LinesEvent
from orchestrator.agents.agent.steps import Refused
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
from orchestrator.remote.replies import printable, read

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
    kind, of = header["event"], "nothing (an event)"
    if kind == "exit":
        ended = read(ExitEvent, header, of=of, node=node)
        yield ProcessExited(node, ended.name, ended.status, ended.wall_ns)
    elif kind == "lines":
        told = read(LinesEvent, header, of=of, node=node)
        for text in told.lines:
            yield LineRead(node, told.name, text, told.wall_ns)
    else:
        raise BadAnswer(f"an event of unknown kind: {str(kind)[:30]}", node=node)


def refusal(node: str, reply: Mapping[str, object], argv: Sequence[str] | None) -> OrchError:
    """The error that a refusal of a request is for whoever asked."""
    refused = read(Refused, reply, of="a request, a refusal", node=node)
    message, kind, tail = shortened(refused.error), refused.kind, refused.tail or ""
    words = refused.argv or argv
    if kind == "locked":
        said = refused.holder or {}
        known = {name: said[name] for name in Holder.__annotations__ if isinstance(said.get(name), (str, int, float))}
        holder = {name: printable(word) for name, word in known.items()}
        return LockedError(f"held by {shortened(holder_text(holder))}", node=node)
    if kind == "timeout":
        return DeadlineExceeded(message, node=node, argv=words, tail=tail)
    hint = _HINTS.get(kind or "")
    sort = NeverStartedError if kind == "unknown" else AgentError
    error = sort(message, node=node, argv=words, tail=tail, hint=hint)
    if refused.undo_failed:
        error.hint = f"the change could not be taken back either: {refused.undo_failed.tail}"
    return error
