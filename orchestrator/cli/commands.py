"""Groups of commands for the parser: each has a line in `orch --help`, and a help of its own with an example."""

from __future__ import annotations

import argparse
import shutil
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field

Action = Callable[[argparse.Namespace], int]

_INDENT = "  "


@dataclass(frozen=True, slots=True)
class Group:
    """Commands under one heading of the help, in the order in which they are added."""

    title: str
    _parsers: argparse._SubParsersAction[argparse.ArgumentParser]
    summaries: dict[str, str] = field(default_factory=dict)  # by command

    def add(
        self, name: str, summary: str, *, example: str, action: Action | None = None, more: str = ""
    ) -> argparse.ArgumentParser:
        """Add a command and return its parser; `more` follows the summary in the command's own help.

        A command with subcommands has no `action`: each subcommand sets one.
        """
        parser = self._parsers.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}." + (f"\n\n{more}" if more else ""),
            epilog=f"example:\n  {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if action is not None:
            parser.set_defaults(action=action)
        self.summaries[name] = summary
        return parser

    def text(self, columns: int) -> str:
        """Return the text of the group in `orch --help`, in so many columns."""
        width = max(map(len, self.summaries)) + len(_INDENT)
        lines = [f"{self.title}:"]
        for name, summary in self.summaries.items():
            lines += textwrap.wrap(
                summary, columns, initial_indent=f"{_INDENT}{name:<{width}}", subsequent_indent=" " * (width + 2)
            )
        return "\n".join(lines)


class Commands:
    """All groups of a parser."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.parser = parser
        self._parsers = parser.add_subparsers(
            dest="command", metavar="COMMAND", prog=parser.prog, help=argparse.SUPPRESS
        )
        self._groups: list[Group] = []

    def group(self, title: str) -> Group:
        """Add a group; groups are shown in the order in which they began."""
        self._groups.append(Group(title, self._parsers))
        return self._groups[-1]

    def names(self) -> set[str]:
        """Return the name of every command."""
        return {name for group in self._groups for name in group.summaries}

    def text(self) -> str:
        """Return the text of all groups, as wide as the terminal."""
        columns = max(40, shutil.get_terminal_size().columns - 2)
        return "\n\n".join(group.text(columns) for group in self._groups)
