"""How an agent gets onto a node without leaving a file there: the one command line, and the one place that quotes."""

from __future__ import annotations

import functools
import shlex
from importlib import resources

# One line without quotes of its own, so that any login shell passes it on unharmed.
_RECEIVE = 'import sys;f=sys.stdin.buffer;exec(compile(f.read(int(f.readline())),"orch-agent","exec"))'


def agent_argv(python: str, *, sudo: bool = False) -> list[str]:
    """The command that waits for an agent's source on its standard input and becomes it."""
    argv = [python, "-I", "-c", _RECEIVE]
    return ["sudo", "-n", *argv] if sudo else argv


def agent_command_line(python: str, *, sudo: bool = False) -> str:
    """`agent_argv` for a channel that takes a line for the login shell, as SSH does."""
    return shlex.join(agent_argv(python, sudo=sudo))


@functools.cache
def agent_source() -> bytes:
    """What to write to the command's standard input: the length of the agent's source in a line, then the source."""
    source = resources.files("orchestrator.agents").joinpath("agent.py").read_bytes()
    return b"%d\n%s" % (len(source), source)
