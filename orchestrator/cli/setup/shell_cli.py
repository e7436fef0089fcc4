"""`orch completion` and `orch schema`: what a shell and an editor complete and check by."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

SHELLS = ("bash", "zsh", "fish")
SCHEMAS = ("experiment", "sweep", "study", "inventory")


def add_schema_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `orch schema`."""
    parser.add_argument("kind", nargs="?", choices=SCHEMAS, default="experiment", help="the kind of file (experiment)")
    parser.add_argument(
        "--all", type=Path, metavar="DIR", help="write the schema of every kind into this folder as KIND.schema.json"
    )


def schema(arguments: argparse.Namespace) -> int:
    """Print a schema, or write all of them; gives the exit code."""
    from orchestrator.core.errors import OrchError
    from orchestrator.experiment import editorschema

    if arguments.all is None:
        print(json.dumps(editorschema.of(arguments.kind), indent=1))
        return 0
    for kind in SCHEMAS:
        path = arguments.all / f"{kind}.schema.json"
        try:
            arguments.all.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(editorschema.of(kind), indent=1) + "\n")
        except OSError as error:
            raise OrchError(f"{path}: cannot be written: {error.strerror}") from None
        print(f"wrote {path}")
    return 0


def add_completion_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `orch completion`."""
    parser.add_argument("shell", choices=SHELLS, help="the shell")


def completion(whole: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """The action of `orch completion` for this command line."""

    def act(arguments: argparse.Namespace) -> int:
        import shtab

        print(shtab.complete(_completed(whole), shell=arguments.shell))
        return 0

    return act


def _completed(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """The parser, whose options and arguments that are files or folders complete as such."""
    import shtab

    todo = [parser]
    while todo:
        for action in todo.pop()._actions:  # noqa: SLF001 - argparse offers no other way to walk its actions
            if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
                action.help = "command"  # our help lists commands in groups; what it leaves out shtab would, too
                todo += action.choices.values()
            elif action.metavar in ("FILE", "TESTBED", "RUN"):
                action.complete = shtab.FILE  # type: ignore[attr-defined]
            elif action.metavar in ("DIR", "FOLDER"):
                action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    return parser
