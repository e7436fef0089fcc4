"""The commands for starting, and for hosts: `orch init`, `doctor`, `prepare`, `testbed`, `clean`, `schema`, ..."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

from orchestrator.cli import options, traffic, verify
from orchestrator.cli.commands import Commands


def register(commands: Commands) -> None:
    """Add the commands of this group."""
    group = commands.group("prepare")
    init = group.add(
        "init", "write a commented folder to start from", action=_init, example="orch init cluster my-rack"
    )
    _init_options(init)

    doctor = group.add(
        "doctor",
        "check a file as `plan` does and its hosts for what it needs, and print the remedies",
        action=_doctor,
        example="orch doctor rack.yaml",
    )
    doctor.add_argument(
        "testbed",
        nargs="?",
        metavar="FILE",
        help="an inventory, or a file that `orch plan` takes: experiment, sweep or study; default: this machine",
    )
    options.local(doctor, "check what the experiment needs on hosts made on this machine, not on an inventory or Slurm")
    options.overrides(doctor)

    verify.register(group)

    prepare = group.add(
        "prepare",
        "build the environments of training frameworks, here or on the hosts of a testbed",
        action=_prepare,
        example="orch prepare rack.yaml --check",
    )
    _prepare_options(prepare)

    testbed = group.add(
        "testbed",
        "keep a local testbed up until Ctrl-C, to try things by hand",
        action=_testbed,
        example="orch testbed --hosts 3 --link 1gbit",
    )
    _testbed_options(testbed)

    clean = group.add(
        "clean",
        "end processes and undo changes that dead runs left on hosts",
        action=_clean,
        example="orch clean rack.yaml --data",
        more="Processes are found by the tag of their run, never by name.",
    )
    clean.add_argument("testbed", nargs="?", metavar="TESTBED", help=options.TESTBED)
    clean.add_argument(
        "--data",
        action="store_true",
        help="also remove the runs' folders on the hosts and, on this machine, the container image that orch built",
    )
    clean.add_argument(
        "--stayed",
        metavar="AGE",
        help="also remove captures that have stayed on hosts for longer than this, such as 14d or 0s, whose results "
        "are lost; `orch prune` removes the others",
    )
    clean.add_argument("--host", metavar="HOST", help="clean only this host")
    clean.add_argument(
        "--forget",
        metavar="RUN",
        default="",
        help="give up those changes of this run that cannot be undone, and print each",
    )

    traffic.register(group)

    schema = group.add(
        "schema",
        "print the JSON Schema of experiment files or other kinds, for editors",
        action=_schema,
        example="orch schema > experiment.schema.json",
    )
    _schema_options(schema)

    completion = group.add(
        "completion",
        "print a shell script that completes commands, options and files",
        action=_completion(commands.parser),
        example="orch completion bash > ~/.local/share/bash-completion/completions/orch",
    )
    _completion_options(completion)


def _testbed_options(testbed: argparse.ArgumentParser) -> None:
    testbed.add_argument("--hosts", type=int, metavar="N", help="number of hosts (3; with --slurm 4)")
    testbed.add_argument("--link", default="1gbit", metavar="RATE", help="rate of every link, both ways (1gbit)")
    testbed.add_argument(
        "--runtime",
        choices=["namespaces", "podman", "docker"],
        default="namespaces",
        help="what the hosts are made of (namespaces)",
    )
    testbed.add_argument(
        "--image", metavar="NAME", help="image of hosts that are containers (default: one that orch builds)"
    )
    testbed.add_argument("--python", metavar="PROGRAM", help="the image's interpreter (python3)")
    testbed.add_argument(
        "--slurm", action="store_true", help="make the hosts nodes of a cluster of Slurm, and print commands to try"
    )
    options.wait(testbed)


def _doctor(arguments: argparse.Namespace) -> int:
    from orchestrator.hosts import doctor

    return doctor.examine(arguments.testbed, arguments.overrides, local=arguments.local)


def _clean(arguments: argparse.Namespace) -> int:
    from orchestrator.hosts import cleaning

    stayed_s = options.age(arguments.stayed, "--stayed", "14d, 36h")
    wanted = cleaning.Wanted(data=arguments.data, stayed_s=stayed_s, forget=arguments.forget, host=arguments.host)
    return cleaning.clean(arguments.testbed, wanted)


def _testbed(arguments: argparse.Namespace) -> int:
    from orchestrator.core.errors import ConfigError
    from orchestrator.execution import holding, run_options

    if arguments.slurm and arguments.runtime != "namespaces":
        raise ConfigError("--runtime: hosts of Slurm are namespaces of this machine; accepted: to leave it out")
    asked = {key: getattr(arguments, key) for key in ("link", "runtime", "image", "python")}
    asked["hosts"] = arguments.hosts or (4 if arguments.slurm else 3)
    wait_s = run_options.wait_seconds(arguments.wait)
    return holding.hold_testbed(asked, slurm=arguments.slurm, wait_s=wait_s, orch=options.ORCH)


def _init_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `orch init`."""
    parser.add_argument(
        "kind",
        nargs="?",
        default="quickstart",
        metavar="KIND",
        help="quickstart (default): a first experiment on this machine; training: one around a training of your own; "
        "cluster: an inventory, an experiment, sudo rules; nightly: a sweep, systemd units, a crontab; slurm: an "
        "experiment in an allocation; kubernetes: an experiment in pods, and a Job that makes them; package: parts of "
        "your own; study: a paper's study",
    )
    parser.add_argument(
        "folder", nargs="?", type=Path, default=Path(), metavar="FOLDER", help="the folder to write into (.)"
    )


def _init(arguments: argparse.Namespace) -> int:
    """Write the folder, and print the next commands; return the exit code."""
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


def _prepare_options(parser: argparse.ArgumentParser) -> None:
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


def _prepare(arguments: argparse.Namespace) -> int:
    """Build missing environments; return the exit code."""
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


SHELLS = ("bash", "zsh", "fish")
SCHEMAS = ("experiment", "sweep", "paper", "inventory")


def _schema_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `orch schema`."""
    parser.add_argument("kind", nargs="?", choices=SCHEMAS, default="experiment", help="the kind of file (experiment)")
    parser.add_argument(
        "--all", type=Path, metavar="DIR", help="write the schema of every kind into this folder as KIND.schema.json"
    )


def _schema(arguments: argparse.Namespace) -> int:
    """Print a schema, or write all of them; return the exit code."""
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


def _completion_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `orch completion`."""
    parser.add_argument("shell", choices=SHELLS, help="the shell")


def _completion(whole: argparse.ArgumentParser) -> Callable[[argparse.Namespace], int]:
    """Return the action of `orch completion` for this command line."""

    def act(arguments: argparse.Namespace) -> int:
        import shtab

        print(shtab.complete(_completed(whole), shell=arguments.shell))
        return 0

    return act


def _completed(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Return the parser with completion of files and folders for its options and arguments."""
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
