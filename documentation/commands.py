"""The reference of commands and their options, from the parser that `orch` itself uses, and of its exit codes."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

from orchestrator.cli.main import build_parser
from orchestrator.core.exitcodes import MEANINGS

_SUBCOMMANDS = argparse._SubParsersAction  # noqa: SLF001 - argparse gives it no other name


def page() -> str:
    """Every command with its options as Markdown, headings from the second level on."""
    return "\n".join(line for name, parser in commands(build_parser()) for line in _command(name, parser))


def commands(parser: argparse.ArgumentParser, name: str = "orch") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every command ("orch baseline set") with its parser, in the order in which help lists them."""
    for action in parser._actions:  # noqa: SLF001 - there is no other way to list what a parser takes
        if isinstance(action, _SUBCOMMANDS):
            for word, inner in action.choices.items():
                yield f"{name} {word}", inner
                yield from commands(inner, f"{name} {word}")


def _command(name: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    depth = "##" if name.count(" ") == 1 else "###"
    yield f"{depth} {name}\n"
    yield f"{_paragraphs(parser.description or '')}\n"
    taken = [action for action in parser._actions if _shown(action)]  # noqa: SLF001
    if taken:
        yield "| argument | |\n|---|---|"
        yield from (f"| {_names(action)} | {_help(action)} |" for action in taken)
        yield ""
    example = (parser.epilog or "").removeprefix("example:\n").strip()
    if example:
        yield f"```bash\n{example}\n```\n"


def _shown(action: argparse.Action) -> bool:
    return (
        not isinstance(action, _SUBCOMMANDS)
        and action.help is not argparse.SUPPRESS
        and "--help" not in action.option_strings
    )


def _names(action: argparse.Action) -> str:
    """An option with what it takes, or the name of an argument."""
    taken = action.metavar or (f"{{{','.join(map(str, action.choices))}}}" if action.choices else action.dest.upper())
    value = "" if action.nargs == 0 else " ".join(taken) if isinstance(taken, tuple) else taken
    if not action.option_strings:
        return f"`{value}`"
    return ", ".join(f"`{option} {value}`".replace(" `", "`") for option in action.option_strings)


def _help(action: argparse.Action) -> str:
    text = (action.help or "") % {"default": action.default, "prog": "orch"}
    return " ".join(text.split()).replace("|", "\\|")


def _paragraphs(text: str) -> str:
    """The description's paragraphs; one with lines that are set in stays as it is laid out."""
    parts = re.split(r"\n\s*\n", text)
    return "\n\n".join(f"```text\n{part}\n```" if "\n " in part else " ".join(part.split()) for part in parts)


def exit_codes() -> str:
    """Exit codes as a table."""
    return "\n".join(
        ["| exit code | |", "|---|---|", *(f"| {code.value} | {meaning} |" for code, meaning in MEANINGS.items())]
    )
