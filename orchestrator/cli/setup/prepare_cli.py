"""`orch prepare`: builds frameworks' environments here or on an inventory's hosts, or the image of local hosts."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `orch prepare`."""
    parser.add_argument(
        "testbed",
        type=Path,
        nargs="?",
        metavar="TESTBED",
        help="an inventory, or an experiment on one; default: this machine",
    )
    parser.add_argument(
        "--image",
        choices=["podman", "docker"],
        metavar="RUNTIME",
        help="build the image for containers of this machine instead; otherwise the first run builds it",
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=["torch", "tensorflow"],
        metavar="NAME",
        help="environment to build: torch (PyTorch, Horovod, DeepSpeed) or tensorflow (and Horovod); may be repeated "
        "(torch)",
    )
    parser.add_argument("--check", action="store_true", help="print what would be done, and do nothing")
    parser.add_argument(
        "--folder", metavar="DIR", help="folder of the environments on each host (~/.cache/orch/frameworks)"
    )
    parser.add_argument("--python", metavar="PATH", help="interpreter on the hosts to build them with")
    parser.add_argument("--within", default="60min", metavar="TIME", help="give up after so long (60min)")


def prepare(arguments: argparse.Namespace) -> int:
    """Build what is missing; gives the exit code."""
    from orchestrator.core.errors import ConfigError
    from orchestrator.core.units import quantity
    from orchestrator.hosts import preparing

    if arguments.image is not None and arguments.testbed is not None:
        raise ConfigError("orch prepare: takes a testbed or --image RUNTIME, not both")
    if arguments.image is not None:
        return preparing.prepare_image(arguments.image)
    within = quantity(arguments.within)
    if within is None or within[0] != "duration":
        raise ConfigError(f"--within {arguments.within}: not a duration; accepted: such as 60min")
    if arguments.folder is not None and not arguments.folder.startswith("/"):
        raise ConfigError(f"--folder {arguments.folder}: not absolute; accepted: a path from the root of each host")
    step = preparing.Step(
        environments=tuple(dict.fromkeys(arguments.only or ["torch"])),
        folder=arguments.folder,
        python=arguments.python,
        within_s=within[1],
    )
    if arguments.testbed is None:
        return preparing.prepare_here(step, check=arguments.check)
    return preparing.prepare(preparing.hosts_of(arguments.testbed), step, check=arguments.check)
