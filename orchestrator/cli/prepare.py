"""The commands to begin with and for hosts: `orch init`, `doctor`, `prepare`, `testbed`, `clean`, `traffic`, ..."""

from __future__ import annotations

import argparse

from orchestrator.cli import options
from orchestrator.cli.commands import Commands
from orchestrator.cli.setup import init_cli, prepare_cli, shell_cli, traffic_cli


def register(commands: Commands) -> None:
    """Add the commands of this group."""
    group = commands.group("prepare")
    init = group.add(
        "init", "write a commented folder to start from", action=init_cli.init, example="orch init cluster my-rack"
    )
    init_cli.add_options(init)

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

    prepare = group.add(
        "prepare",
        "build the environments of training frameworks, here or on the hosts of a testbed",
        action=prepare_cli.prepare,
        example="orch prepare rack.yaml --check",
    )
    prepare_cli.add_options(prepare)

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

    traffic = group.add(
        "traffic",
        "generate and check cross traffic without an experiment",
        example="orch traffic schedule --load 10gbit --burst 1ms,10ms,3 --plot burst",
    )
    traffic_cli.add_options(traffic)

    schema = group.add(
        "schema",
        "print the JSON Schema of experiment files or other kinds, for editors",
        action=shell_cli.schema,
        example="orch schema > experiment.schema.json",
    )
    shell_cli.add_schema_options(schema)

    completion = group.add(
        "completion",
        "print a shell script that completes commands, options and files",
        action=shell_cli.completion(commands.parser),
        example="orch completion bash > ~/.local/share/bash-completion/completions/orch",
    )
    shell_cli.add_completion_options(completion)


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
