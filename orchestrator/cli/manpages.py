"""Makes man pages from the parser's help of each command; setup.py puts them into the wheel."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator.cli.commandline import DESCRIPTION, EXAMPLES, build_parser, exit_text

_SUBCOMMANDS = argparse._SubParsersAction  # noqa: SLF001 - argparse gives it no other name
_USAGE = "usage: "
_COLUMNS = 70


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a command: its options (none for a positional one), its values, and its help."""

    options: tuple[str, ...]
    value: str
    help: str


def below(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield the subcommands of a command, in the order in which help lists them."""
    for action in parser._actions:  # noqa: SLF001 - there is no other way to list what a parser takes
        if isinstance(action, _SUBCOMMANDS):
            yield from action.choices.items()


def arguments(parser: argparse.ArgumentParser) -> list[Argument]:
    """Return the arguments of a command, without `--help` and the commands below it."""
    return [
        Argument(tuple(action.option_strings), _taken(action), _help(action))
        for action in parser._actions  # noqa: SLF001
        if not isinstance(action, _SUBCOMMANDS | argparse._HelpAction) and action.help is not argparse.SUPPRESS  # noqa: SLF001
    ]


def example(parser: argparse.ArgumentParser) -> str:
    """Return a command line to try; empty where there is none."""
    return (parser.epilog or "").removeprefix("example:\n").strip()


def _taken(action: argparse.Action) -> str:
    named = action.metavar or (f"{{{','.join(map(str, action.choices))}}}" if action.choices else action.dest.upper())
    return "" if action.nargs == 0 else " ".join(named) if isinstance(named, tuple) else named


def _help(action: argparse.Action) -> str:
    return " ".join(((action.help or "") % {"default": action.default, "prog": "orch"}).split())


def write(folder: Path, version: str) -> None:
    """Write orch.1 and a page a command, such as orch-run.1, into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages(version).items():
        (folder / f"{name}.1").write_text(text, encoding="utf-8")


def pages(version: str) -> dict[str, str]:
    """Return the pages, in the macros of man(7), by name, such as orch-run."""
    commands = dict(below(build_parser()))
    found = {"orch": _page("orch", "measure what the network does to training", version, _whole(commands))}
    for word, parser in commands.items():
        lines = (*_command(f"orch {word}", parser), ".SH SEE ALSO", ".BR orch (1)")
        found[f"orch-{word}"] = _page(f"orch-{word}", _summary(parser), version, lines)
    return found


def _page(name: str, summary: str, version: str, lines: Iterator[str] | tuple[str, ...]) -> str:
    head = (rf'.TH "{_text(name.upper())}" "1" "" "orch {_text(version)}" "orch"', ".SH NAME")
    return "\n".join([*head, rf"{_text(name)} \- {_text(summary)}", *lines, ""])


def _whole(commands: dict[str, argparse.ArgumentParser]) -> Iterator[str]:
    yield from (".SH SYNOPSIS", *_as_it_is("orch [--help] [--version] COMMAND ..."))
    yield from (".SH DESCRIPTION", *_paragraphs(DESCRIPTION), ".SH COMMANDS")
    for word, parser in commands.items():
        yield from (".TP", rf".BR {_text(f'orch-{word}')} (1)", _text(_summary(parser)))
    for title, text in (("EXAMPLES", EXAMPLES), ("EXIT STATUS", exit_text())):
        yield from (f".SH {title}", *_as_it_is(text.partition("\n")[2]))


def _command(name: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    """Write a command and, each under a heading of its own, its subcommands."""
    yield from (".SH SYNOPSIS", *_as_it_is(_usage(parser)), ".SH DESCRIPTION", *_paragraphs(parser.description or ""))
    yield from (".SH OPTIONS", *_options(parser))
    for word, inner in below(parser):
        yield from (f".SH {_text(f'{name} {word}'.upper())}", *_as_it_is(_usage(inner)))
        yield from (*_paragraphs(inner.description or ""), *_options(inner))
    if example(parser):
        yield from (".SH EXAMPLE", *_as_it_is(example(parser)))


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    for one in [*arguments(parser), Argument(("-h", "--help"), "", "show the help of this command")]:
        names = ", ".join(rf"\fB{_text(option)}\fR" for option in one.options)
        yield from (".TP", f"{names} \\fI{_text(one.value)}\\fR".strip() if one.value else names, _text(one.help))


def _usage(parser: argparse.ArgumentParser) -> str:
    """Return a command's usage, as wide as a page, whatever the terminal is."""
    formatter = argparse.HelpFormatter(parser.prog, width=_COLUMNS + len(_USAGE))
    formatter.add_usage(parser.usage, parser._actions, parser._mutually_exclusive_groups)  # noqa: SLF001
    return "\n".join(line[len(_USAGE) :] for line in formatter.format_help().strip().splitlines())


def _summary(parser: argparse.ArgumentParser) -> str:
    """Return the first sentence of a command's description, for a list."""
    summary = " ".join((parser.description or "").split("\n\n")[0].split()).removesuffix(".")
    return summary[:1].lower() + summary[1:]


def _paragraphs(text: str) -> Iterator[str]:
    for part in re.split(r"\n\s*\n", text):
        yield from (_as_it_is(part) if "\n " in part else (".PP", _text(" ".join(part.split()))))


def _as_it_is(text: str) -> tuple[str, ...]:
    """Write lines that man does not fill."""
    return (".PP", ".nf", *map(_text, text.splitlines()), ".fi")


def _text(text: str) -> str:
    """Escape text for man: hyphens that can be copied, and no line that begins with a request."""
    plain = text.replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{plain}" if plain[:1] in (".", "'") else plain
