"""Runs playbooks/hosts/prepare-frameworks: here, or on the hosts of an inventory over the same agents as a run."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from orchestrator.agents.agent.commands import Completed
from orchestrator.core import fanout
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import ConfigError, OrchError
from orchestrator.core.exitcodes import Exit
from orchestrator.core.paths import playbooks
from orchestrator.execution.session import MEASURING, holder
from orchestrator.experiment import opening
from orchestrator.parts.topology import Node
from orchestrator.remote.agent_client import AgentClient
from orchestrator.testbed.inventory import Inventory, InventoryTestbed, topology
from orchestrator.testbed.local import containers, runtimes

SCRIPT = "prepare-frameworks"

_CALL_S = 60.0
_IMAGE_S = 600.0
_LOCK = "prepare"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Arguments of the playbook: environments, and where they go and what they are made with, if not by default."""

    environments: tuple[str, ...]
    folder: str | None = None
    python: str | None = None
    within_s: float = 3600.0

    def argv(self, folder: PurePosixPath, *, check: bool) -> list[str]:
        """Return the command on a host where the playbook lies in `folder`."""
        settings = {"ORCH_FRAMEWORKS": self.folder, "PYTHON": self.python, "TENSORFLOW_PYTHON": self.python}
        variables = [f"{name}={value}" for name, value in settings.items() if value is not None]
        options = ["--check"] if check else []
        return ["env", *variables, "bash", str(folder / SCRIPT), *options, *self.environments]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one host: what it lacks, the playbook's output, and what went wrong."""

    lacks: tuple[str, ...]
    said: tuple[str, ...] = ()
    trouble: str = ""


def hosts_of(path: Path) -> Inventory:
    """Return the inventory in a file, or in the experiment in it.

    Raise ConfigError for one of this machine's own containers.
    """
    found = opening.inventory_or_experiment(path)
    if isinstance(found, Inventory):
        return found
    if found.testbed.slurm is not None:
        raise ConfigError(
            f"{path}: orch prepare does not reach hosts of Slurm, which usually share file systems with this machine",
            hint="run `orch prepare` here without a testbed, with --folder on a file system that they share",
        )
    if found.testbed.kubernetes is not None:
        raise ConfigError(
            f"{path}: orch prepare does not reach pods, whose files end with them",
            hint="have the environments in their image: `orch prepare --folder` when it is built",
        )
    if found.testbed.inventory is None:
        raise ConfigError(
            f"{path}: its hosts are containers of this machine, which use this machine's environments",
            hint="run `orch prepare` without a testbed",
        )
    return found.testbed.inventory


def prepare(inventory: Inventory, step: Step, *, check: bool) -> int:
    """Print what every host lacks, then prepare it unless only to `check`; return 0 when no host lacks anything.

    A host that fails keeps what was finished, and the others go on: the same command again does what is left.
    """
    files = _playbook()
    where = topology(inventory)
    testbed = InventoryTestbed(inventory)
    run = f"prepare-{time.time_ns()}"

    def on(node: Node) -> Outcome:
        deadline = Deadline.after(step.within_s)
        try:
            client = AgentClient(
                node,
                testbed.connect(node.name, Deadline.after(_CALL_S)),
                run=run,
                holder=holder(run),
                on_event=lambda _: None,
            )
            try:
                return _on(client, files, step, check=check, deadline=deadline)
            finally:
                client.close(Deadline.after(_CALL_S))
        except OrchError as error:
            return Outcome((), trouble=error.render())

    outcomes = fanout.each(where.hosts, on, deadline=Deadline.after(step.within_s + 2 * _CALL_S), what="preparing")
    return max([_report(node.name, outcome, check=check) for node, outcome in outcomes.items()])


def prepare_here(step: Step, *, check: bool) -> int:
    """Build environments that local containers lack, in this user's cache; return 0 when nothing is left to do.

    The playbook prints what it does, and asks for sudo where system packages are missing.
    """
    argv = step.argv(PurePosixPath(playbooks.HOSTS), check=check)
    process = subprocess.Popen(argv)
    try:
        status = process.wait(step.within_s)
    except subprocess.TimeoutExpired:
        process.terminate()
        process.wait()
        raise OrchError(f"{SCRIPT} was stopped after {step.within_s:.0f} s", hint="--within TIME allows more") from None
    return Exit.OK if status == 0 else Exit.FAILED


def prepare_image(runtime: str) -> int:
    """Make the image of local hosts for a container runtime, unless it is there; return 0."""
    image = containers.ensure_image(runtimes.able(runtime), Deadline.after(_IMAGE_S))
    print(f"{runtime} has the image {image}, whose hosts see this machine's programs")
    return Exit.OK


def _on(client: AgentClient, files: dict[str, Path], step: Step, *, check: bool, deadline: Deadline) -> Outcome:
    folder = PurePosixPath(client.hello(Deadline.after(_CALL_S)).folder)
    try:
        client.lock(_LOCK, Deadline.after(_CALL_S))
        for name, path in files.items():
            client.put(name, path, Deadline.after(_CALL_S))
        looked = client.run(step.argv(folder, check=True), deadline, privileged=False)
        lacks = _lines(looked)
        if looked.status not in (0, 1) or (looked.status == 1 and not lacks):
            return Outcome((), trouble=_failure(looked))
        if check or looked.status == 0:
            return Outcome(lacks if looked.status else (), lacks if not looked.status else ())
        client.lock(MEASURING, Deadline.after(_CALL_S))  # compilers beside a run would be measured
        print(*(f"{client.node.name}: {line}" for line in lacks), sep="\n", flush=True)
        done = client.run(step.argv(folder, check=False), deadline, privileged=False)
        return Outcome((), _lines(done), _failure(done) if done.status else "")
    finally:
        client.remove(Deadline.after(_CALL_S))


def _lines(done: Completed) -> tuple[str, ...]:
    return tuple(line.removeprefix("frameworks: ") for line in done.stdout.splitlines() if line.startswith("framew"))


def _failure(done: Completed) -> str:
    shown: Sequence[str] = (done.stdout + done.stderr).strip().splitlines()[-10:]
    return "\n    ".join([f"{SCRIPT} ended with status {done.status}", *shown])


def _report(host: str, outcome: Outcome, *, check: bool) -> int:
    """Print the result of a host; return its part of the exit status."""
    for line in outcome.said:
        print(f"{host}: {line}")
    for line in outcome.lacks:
        print(f"{host}: would do: {line}")
    if outcome.trouble:
        print(f"{host}: failed: {outcome.trouble}")
    elif not outcome.lacks:
        print(f"{host}: {'nothing to do' if check else 'ready'}")
    return Exit.FAILED if outcome.trouble or outcome.lacks else Exit.OK


def _playbook() -> dict[str, Path]:
    """Return the files of the playbook, by their names below a folder on the host."""
    folder = playbooks.HOSTS
    beside = (folder / "install-packages", folder / "packages.txt", *sorted((folder / "frameworks").iterdir()))
    return {str(path.relative_to(folder)): path for path in (folder / SCRIPT, *beside)}
