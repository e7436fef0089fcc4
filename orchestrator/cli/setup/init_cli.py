"""`orch init`: writes a commented folder to start from."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `orch init`."""
    parser.add_argument(
        "kind",
        nargs="?",
        default="quickstart",
        metavar="KIND",
        help="quickstart (default): a first experiment on this machine; training: one around a training of your own; "
        "cluster: an inventory, an experiment, sudo rules; nightly: a sweep, systemd units, a crontab; slurm: an "
        "experiment in an allocation; package: parts of your own; study: a paper's study",
    )
    parser.add_argument(
        "folder", nargs="?", type=Path, default=Path(), metavar="FOLDER", help="the folder to write into (.)"
    )


def init(arguments: argparse.Namespace) -> int:
    """Write the folder, and say what comes next; gives the exit code."""
    from orchestrator.core.errors import ConfigError
    from orchestrator.experiment import starter_files

    if arguments.kind not in starter_files.KINDS:
        kinds = "\n".join(f"  {name:<12}{start.what}" for name, start in starter_files.KINDS.items())
        raise ConfigError(f"orch init {arguments.kind}: no such kind; there are\n{kinds}")
    for path in starter_files.write(arguments.kind, arguments.folder):
        print(f"wrote {path}")
    print("\nnext:")
    if arguments.folder != Path():
        print(f"  cd {arguments.folder}")
    start = starter_files.KINDS[arguments.kind]
    for command in (*start.before, *start.commands):
        print(f"  {command}")
    return 0
