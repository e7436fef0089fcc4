"""Which programs the sources start, as far as literals tell: the first word of every command that is written out."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

# Functions whose first argument is a command or a program's name, and names that a command is given to.
_STARTERS = frozenset({"run", "Popen", "call", "check_output", "which", "find_program", "_read", "_output"})
_COMMANDS = frozenset({"argv", "read", "undo", "apply", "prefix", "client", "program", "command", "UNSHARE", "root"})
_WORD = re.compile(r"/?[a-z][a-z0-9_+./-]*[a-z0-9+]")


def programs(folder: Path) -> dict[str, str]:
    """The programs that sources below a folder start, each with a place where one does."""
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            for command in _commands(node):
                for word in _first_words(command):
                    found.setdefault(Path(word).name, f"{path.relative_to(folder)}:{command.lineno}")
    return found


def _commands(node: ast.AST) -> Iterator[ast.expr]:
    """What a node starts, or calls a command."""
    if isinstance(node, ast.Call):
        if _name(node.func) in _STARTERS:
            yield from node.args[:1]
        yield from (keyword.value for keyword in node.keywords if keyword.arg in _COMMANDS)
    elif isinstance(node, ast.Assign):
        yield from (node.value for target in node.targets if _name(target) in _COMMANDS)
    elif isinstance(node, ast.Return) and isinstance(node.value, ast.List):
        yield node.value


def _name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _first_words(node: ast.AST) -> Iterator[str]:
    """The first word of a command, or of each command of a list of them."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        if _WORD.fullmatch(node.value):
            yield node.value
    elif isinstance(node, ast.Lambda):
        yield from _first_words(node.body)
    elif isinstance(node, ast.BinOp | ast.IfExp):
        yield from _first_words(node.left if isinstance(node, ast.BinOp) else node.body)
    elif isinstance(node, ast.Starred):
        yield from _first_words(node.value)
    elif isinstance(node, ast.List | ast.Tuple) and node.elts:
        nested = [one for one in node.elts if isinstance(one, ast.List | ast.Tuple)]
        for one in nested or node.elts[:1]:
            yield from _first_words(one)


def skip_reasons(folder: Path) -> dict[str, str]:
    """The reasons that tests below a folder give for being skipped, each with a place."""
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and _name(node.func) in {"skip", "skipif"}:
                given = [keyword.value for keyword in node.keywords if keyword.arg == "reason"]
                for value in given or node.args[:1]:
                    if isinstance(value, ast.Constant) and isinstance(value.value, str):
                        found[value.value] = f"{path.relative_to(folder)}:{node.lineno}"
    return found
