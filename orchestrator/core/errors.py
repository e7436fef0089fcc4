"""The exceptions that orch raises on purpose, in one tree; any other one that escapes is a bug."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.core.exitcodes import Exit

TAIL_LINES = 10
MOST_TOLD = 300  # characters of a message that quotes what somebody wrote


def last_lines(text: str) -> str:
    """Return as much of an output's end as an error shows."""
    return "\n".join(map(shortened, text.rstrip().splitlines()[-TAIL_LINES:]))


def shortened(text: str) -> str:
    """Return a quoted text, shortened to what an error shows."""
    return text if len(text) <= MOST_TOLD else text[:MOST_TOLD] + "..."


class OrchError(Exception):
    """An error that the user can act on.

    `message` says what, `node` where, `argv` which command, `tail` the last lines that it printed, and `hint` what
    would mend it. `exit_code` is what the process ends with when this error reaches the command line.
    """

    exit_code = Exit.FAILED

    def __init__(
        self,
        message: str,
        *,
        node: str | None = None,
        argv: Sequence[str] | None = None,
        tail: str = "",
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.node = node
        self.argv = tuple(argv) if argv is not None else None
        self.tail = last_lines(tail)
        self.hint = hint

    def __str__(self) -> str:
        return self.render()

    def render(self) -> str:
        """Return the error as a person reads it: one line of what and where, then command, output, hint and notes."""
        lines = [f"{self.node}: {self.message}" if self.node else self.message]
        if self.argv:
            lines.append("  command: " + " ".join(self.argv))
        if self.tail:
            lines.append("  last output:")
            lines.extend("    " + line for line in self.tail.splitlines())
        if self.hint:
            lines.append("  remedy: " + self.hint)
        lines.extend(f"  also: {note}" for note in getattr(self, "__notes__", ()))
        return "\n".join(lines)


class ConfigError(OrchError):
    """A file or an option of the user's is wrong; nothing has been touched."""

    exit_code = Exit.MISTAKE


class TestbedError(OrchError):
    """A testbed could not be brought up, reached or put back."""

    __test__ = False  # keeps pytest from collecting it


class TransportError(TestbedError):
    """A host could not be reached, or the channel to its agent ended."""

    def again(self) -> TransportError:
        """Return a copy for another caller, which adds notes of its own."""
        return TransportError(self.message, node=self.node, argv=self.argv, tail=self.tail, hint=self.hint)


class AgentError(OrchError):
    """An agent refused or failed a request."""


class BadAnswer(AgentError):
    """An agent's answer violates the protocol: the agent is broken, or of another version."""


class UnsafePath(OrchError):
    """A name given by a host, a bucket or a file would lead out of the folder that it belongs into."""


class NeverStartedError(AgentError):
    """An agent was asked about a process that was never started there, and will not be."""


class DeadlineExceeded(OrchError):
    """A wait ran past its deadline."""


class LockedError(TestbedError):
    """Another process holds the testbed; the message names the holder."""


class MissingRequirement(TestbedError):
    """A host lacks something that the experiment needs; the hint says how to get it."""


class LaunchError(OrchError):
    """A process of the run did not start, did not get ready, or ended when it should not have."""


class ShortOfLoad(OrchError):
    """A source of cross traffic, alone on its links, does not reach the requested load."""


class StoreError(OrchError):
    """A results store, or a run in it, is missing, damaged or cannot be written."""


class CaptureError(OrchError):
    """A packet capture cannot be read."""


class Interrupted(OrchError):
    """The user pressed Ctrl-C, or the process was asked to end."""

    exit_code = Exit.INTERRUPTED
