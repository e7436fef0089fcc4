"""Generate the reference of commands, options and exit codes from the parser that `orch` itself uses."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

from orchestrator.cli import manpages
from orchestrator.cli.commandline import build_parser
from orchestrator.cli.manpages import Argument
from orchestrator.core.exitcodes import MEANINGS

_BAR = "\\|"  # within a table


def page() -> str:
    """Return every command with its options as Markdown, headings from the second level on."""
    return "\n".join(line for name, parser in commands(build_parser()) for line in _command(name, parser))


def commands(parser: argparse.ArgumentParser, name: str = "orch") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Return every command ("orch baseline set") with its parser, in the order in which help lists them."""
    for word, inner in manpages.below(parser):
        yield f"{name} {word}", inner
        yield from commands(inner, f"{name} {word}")


def _command(name: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    depth = "##" if name.count(" ") == 1 else "###"
    yield f"{depth} {name}\n"
    yield f"{_paragraphs(parser.description or '')}\n"
    taken = manpages.arguments(parser)
    if taken:
        yield "| argument | |\n|---|---|"
        yield from (f"| {_names(one)} | {one.help.replace('|', _BAR)} |" for one in taken)
        yield ""
    example = manpages.example(parser)
    if example:
        yield f"```bash\n{example}\n```\n"


def _names(one: Argument) -> str:
    """Return the flags of an option with its metavar, or the name of a positional argument."""
    if not one.options:
        return f"`{one.value}`"
    return ", ".join(f"`{option} {one.value}`".replace(" `", "`") for option in one.options)


def _paragraphs(text: str) -> str:
    """Split a description into paragraphs; one with indented lines keeps its layout."""
    parts = re.split(r"\n\s*\n", text)
    return "\n\n".join(f"```text\n{part}\n```" if "\n " in part else " ".join(part.split()) for part in parts)


def exit_codes() -> str:
    """Return the exit codes as a table of Markdown."""
    return "\n".join(
        ["| exit code | |", "|---|---|", *(f"| {code.value} | {meaning} |" for code, meaning in MEANINGS.items())]
    )
