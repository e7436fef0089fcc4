"""Builds the command line and the source that start an agent on a node without leaving a file there."""

from __future__ import annotations

import functools
import shlex
import zlib
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.abc import Traversable

# One line without quotes of its own, so that any login shell passes it on unharmed.
_RECEIVE = (
    "import sys,zlib;f=sys.stdin.buffer;"
    'exec(compile(zlib.decompress(f.read(int(f.readline().split()[-1]))),"orch-agent","exec"))'
)
# What stands before the length: a shell that reads the agent's source, because a start-up file put it in the place of
# the one that was told to start Python, says so and ends at this line, and tries none of the bytes that follow.
_FOR_SHELLS = b"echo a shell reads what Python should read; exit 1 # "


# In words that any Python reads: an older one could not even compile the agent.
_OLD_ENOUGH = (
    "import sys\n"
    "if sys.version_info<(3,8):sys.exit('Python %d.%d is too old: the agent needs 3.8'%tuple(sys.version_info[:2]))"
)


def agent_argv(python: str, *, sudo: bool | str = False) -> list[str]:
    """Return the command that waits for an agent's source on its standard input and becomes it.

    `sudo` is whether it becomes root, or a program on the node that sudo starts as root and that starts it with less.
    """
    argv = [python, "-I", "-c", _RECEIVE]
    if not sudo:
        return argv
    return ["sudo", "-n", *([sudo] if isinstance(sudo, str) else []), *argv]


def agent_command_line(python: str, *, sudo: bool | str = False) -> str:
    """Return `agent_argv` quoted for a channel that takes a line for the login shell, as SSH does."""
    return shlex.join(agent_argv(python, sudo=sudo))


def agent_modules() -> dict[str, str]:
    """Return the source of each of the agent's modules, by its name in their package: `ops`, `files`."""
    return dict(_modules(resources.files("orchestrator.agents.agent")))


def _modules(folder: Traversable, inside: str = "") -> Iterator[tuple[str, str]]:
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.name.endswith(".py"):
            yield inside + file.name[: -len(".py")], file.read_text(encoding="utf-8")
        elif file.joinpath("__init__.py").is_file():
            yield from _modules(file, f"{inside}{file.name}.")


def packed(modules: Mapping[str, str], *, before: str = "") -> bytes:
    """Return the agent's modules as one compressed text, behind a line that ends with its length.

    The text is the loader, and a call that gives it the others. A slow network carries it once for each node.
    `before` is a program that the interpreter carries out first, with names of its own.
    """
    others = {name: text for name, text in modules.items() if name != "loader"}
    text = f"{modules['loader']}\n\nbecome({others!r})\n"
    first = f'exec(compile({before!r},"orch-start","exec"),{{}})\n' if before else ""
    source = zlib.compress(f'{_OLD_ENOUGH}\n{first}exec(compile({text!r},"orch-agent","exec"))\n'.encode(), level=9)
    return b"%b%d\n%b" % (_FOR_SHELLS, len(source), source)


@functools.cache
def agent_source() -> bytes:
    """Return the text to write to the command's standard input."""
    return packed(agent_modules())
