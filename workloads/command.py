"""Any other training command, started once for each rank; iterations are found in its output."""

from __future__ import annotations

import json
import os
import re
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import Field, model_validator

from orchestrator.core import secret_looks
from orchestrator.core.fields import Duration, Model
from orchestrator.core.paths import lookup
from orchestrator.core.paths.lookup import SentFile
from orchestrator.core.units import Mistake
from orchestrator.parts.launch import Launch, Line, Requirement, Stop
from orchestrator.parts.protocols import Problem
from orchestrator.parts.rows import Columns, LaunchOutput
from orchestrator.parts.theory import Theory
from orchestrator.parts.topology import RENDEZVOUS_PORT, Job, Rank, Topology, in_url
from workloads.common import environments, launchers, nccl_evidence, shipping, torch_ranks
from workloads.common.launchers import Launcher
from workloads.common.nccl_evidence import NcclConfig
from workloads.common.placement import RecordedEnv, placement_problems
from workloads.rank.external.command import ODD_LINES, LoggedCommandSettings
from workloads.readers import lines
from workloads.readers.iteration_logs import LOG, read_iterations
from workloads.readers.nccl import read_nccl
from workloads.readers.torch_profiles import read_profiles

NAME = "command"

_PROGRAM = "external.command"
_SETTINGS = "command.json"
_RESERVED = {shipping.ARCHIVE, _SETTINGS, LOG, ODD_LINES, "stdout", "stderr"}
_UNKNOWN = frozenset({"forward_s", "backward_s", "wait_s", "loss", "samples"})

_FROM_ENV = re.compile(r"(?<!\{)\{env:([A-Za-z_][A-Za-z0-9_]*)\}")  # as the rank's program has it
_PLACEHOLDER = re.compile(r"\{\{[a-z_]+\}\}|\{[a-z_]+\}")
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,100}")
_MOST_FILES, _MOST_BYTES = 1000, 1 << 28  # that each rank gets, one after the other
_LEFT_OUT = re.compile(r"\..*|__pycache__")  # of folders
_INTERPRETER = re.compile(r"\{python\}|(?:.*/)?(?:python[0-9.]*|bash|sh)")

UNPREDICTED = (
    "workload command does not say what its program computes and sends; accepted: `chakra: {traces: FOLDER}`, where "
    "`orch export chakra RUN -o FOLDER` wrote a run of it whose ranks recorded themselves by torch.profiler"
)

Quantity = Literal["seconds", "milliseconds", "loss", "samples", "accuracy"]
_QUANTITIES: tuple[str, ...] = ("seconds", "milliseconds", "loss", "samples", "accuracy")


class Iterations(Model):
    """How to tell from the lines of a command that an iteration ended. Each line that matches is the end of one.

    Where it tells no time, an iteration lasts from one such line to the next, and the first line only begins it.
    """

    pattern: str | None = None
    """Regular expression that is searched in each line; its named groups may be seconds or milliseconds, loss, samples
    and accuracy, each a number."""

    json_paths: Annotated[dict[Quantity, str], Field(min_length=1)] | None = Field(default=None, alias="json")
    """For lines that are JSON objects, instead of a pattern: seconds or milliseconds, loss, samples or accuracy, and
    where it stands, such as `{seconds: timing.step, loss: metrics.0}`. A line without one of them is passed over."""

    file: str | None = Field(default=None, min_length=1)
    """File in which the lines stand, from the command's working folder. Default: what the command prints, on standard
    output and on standard error; a line that comes on both counts once."""

    ranks: Literal["all", "first"] = "all"
    """Whether every rank prints its iterations, or the first alone."""

    first_within: Annotated[Duration, Field(gt=0)] = 120.0
    """How long after its start a command may take to the first line that matches."""

    @model_validator(mode="after")
    def _one_way(self) -> Iterations:
        if (self.pattern is None) == (self.json_paths is None):
            raise Mistake("takes one way to recognize iterations", accepted="either pattern or json")
        names: tuple[str, ...] = tuple(self.json_paths or ())
        if self.pattern is not None:
            try:
                names = tuple(re.compile(self.pattern).groupindex)
            except re.error as error:
                raise Mistake(
                    f"not a regular expression: {error}",
                    accepted="what Python's re takes, such as step \\d+ took (?P<seconds>[\\d.]+)",
                    at=("pattern",),
                ) from None
        wrong = [name for name in names if name not in _QUANTITIES]
        if wrong:
            raise Mistake(f"no quantity is called {wrong[0]}", accepted=", ".join(_QUANTITIES), at=("pattern",))
        if self.pattern is not None and not names and re.compile(self.pattern).groups:
            raise Mistake(
                "its groups have no names, so that they tell nothing",
                accepted=f"(?P<seconds>...) for what is one of {', '.join(_QUANTITIES)}; (?:...) for what is none",
                at=("pattern",),
            )
        if {"seconds", "milliseconds"} <= set(names):
            raise Mistake("tells the time twice", accepted="seconds or milliseconds")
        return self


class Config(NcclConfig):
    """A training of yours. Its command is started at the gate, so that its preparation lies before the warm-up ends.

    In `argv`, `env` and `cwd` these stand for what each rank is: {rank} {world} {local_rank} {local_world} {node}
    {address} {device} {gpu} {master} {port} {hosts} {slots} {python}; {{rank}} is the text {rank} itself. {hosts} are
    the addresses with commas between, {slots} the same with `:ranks` behind each. In `argv` {env:NAME} is the value of
    a variable that `env_from` brings: it is recorded nowhere, but whoever is on the host sees it among the processes.
    No shell reads any of it. When the run is over the command gets SIGTERM; it must not end by itself before.
    """

    argv: tuple[str, ...] = Field(min_length=1)
    """The command and its arguments, such as ["{python}", "-u", "train.py", "--rank", "{rank}"]."""

    iterations: Iterations
    """How its output tells of an iteration. Mind that many programs hold back what they print into a pipe; Python is
    told not to."""

    env: RecordedEnv = Field(default_factory=dict)
    """More environment variables; they win over RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR,
    MASTER_PORT, GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME, which each rank gets. They are recorded with the results:
    no place for secrets."""

    cwd: str | None = Field(default=None, min_length=1)
    """Its working folder on the host. Default: a folder of the rank's own, which comes home with all that is in it."""

    files: tuple[SentFile, ...] = ()
    """Files and folders of this machine that are put into the rank's own folder under the paths by which they are named
    here, such as train.py or package/model.py; of a path that does not lead down, an absolute one too, the last name
    alone. Looked up beside the file that names them, then from the current folder. Of a folder all that is in it, but
    hidden files and __pycache__."""

    launcher: Launcher | None = None
    """What tells each rank who it is, and supervises it: torchrun on each host, or one mpirun or srun on the first. The
    command is one rank's, as it would stand behind `torchrun`; each rank's iterations are read. Default: nothing, and
    the variables below `env` say it."""

    launcher_program: str | None = Field(default=None, min_length=1)
    """The launcher's program on the hosts. Default: torch's own module of the hosts' Python, and mpirun or srun on the
    PATH."""

    nccl_log: bool = False
    """Whether ranks that use NCCL keep its log: tables `nccl_connections` and `nccl_rings`, and gate `transport`."""

    samples: int | None = Field(default=None, ge=1)
    """Samples per rank and iteration, where its output does not say."""

    grace: Annotated[Duration, Field(gt=0, le=20)] = 5.0
    """How long it may take to end after SIGTERM before it is killed."""


def problems(config: Config, topology: Topology) -> list[Problem]:
    found = placement_problems(config.hosts, topology, least=1)
    hosts = topology.placed if config.hosts is None else config.hosts
    found += launchers.problems(config.launcher, hosts, contained=config.container is not None)
    if config.launcher_program is not None and config.launcher is None:
        message = "is a launcher's program, and there is no launcher"
        found.append(Problem(at=("launcher_program",), message=message, accepted="launcher: torchrun beside it"))
    secrets = secret_looks.secret_words([_FROM_ENV.sub("", word) for word in config.argv])
    found += _missing_from_env(config)
    texts: list[tuple[tuple[str | int, ...], str]] = [(("argv", i), word) for i, word in enumerate(config.argv)]
    texts += [(("env", name), value) for name, value in config.env.items()]
    texts += [(("cwd",), config.cwd or "")]
    for at, text in texts:
        for name in _PLACEHOLDER.findall(text):
            if not name.startswith("{{") and name[1:-1] not in _NAMES:
                known = ", ".join(f"{{{known}}}" for known in _NAMES)
                found.append(Problem(at=at, message=f"nothing is called {name}", accepted=f"{known}, or {{{name}}}"))
        if (at[0] == "argv" and at[1] in secrets) or secret_looks.value_looks_secret(text):
            message = "this looks like a secret; it is recorded, and everybody on the host sees command lines"
            accepted = "a variable that env_from brings, or {env:NAME} of one, which is not recorded"
            found.append(Problem(at=at, message=message, accepted=accepted))
        if "\0" in text:
            found.append(Problem(at=at, message="has a zero byte in it", accepted="text without one"))
    files = _file_problems(config)
    return [*found, *files, *([] if files else _script_problems(config)), *nccl_evidence.away(config, config.cwd)]


def _missing_from_env(config: Config) -> Iterator[Problem]:
    """Find words of the command that take the value of a variable which `env_from` lacks."""
    brought = config.env_from or {}
    for place, word in enumerate(config.argv):
        for name in _FROM_ENV.findall(word):
            if name not in brought:
                accepted = ", ".join(f"{{env:{one}}}" for one in brought) or f"env_from: [{name}] beside argv"
                yield Problem(at=("argv", place), message=f"env_from brings no {name}", accepted=accepted)


def _file_problems(config: Config) -> list[Problem]:
    found = []
    seen: dict[str, int] = {}
    size = 0
    for index, sent in enumerate(config.files):
        at = ("files", index)
        contents = _contents(sent)
        if not contents:
            empty = Path(sent).is_dir()
            message = f"no file in the folder {sent}" if empty else f"no file {sent}"
            found.append(Problem(at=at, message=message, accepted="a file of this machine, or a folder with files"))
        for name, path in contents.items():
            first, *_ = names = name.split("/")
            above = {"/".join(names[:depth]) for depth in range(1, len(names))}
            size += path.stat().st_size
            if first in _RESERVED or not all(map(_FILE_NAME.fullmatch, names)):
                message = f"no file in a rank's folder may be called {name!r} but our own"
                accepted = "another name of letters, digits, '.', '-' and '_'"
            elif name in seen:
                message, accepted = f"a second file {name}", "one of each path"
            elif above & seen.keys() or any(other.startswith(f"{name}/") for other in seen):
                message, accepted = f"{name} is a file here and a folder there", "another name"
            elif len(seen) == _MOST_FILES or size > _MOST_BYTES:
                message = f"more than {_MOST_FILES} files, or {_MOST_BYTES >> 20} MiB, for each rank"
                accepted = "what the command needs alone; the rest may lie on the hosts already"
            else:
                seen[name] = index
                continue
            found.append(Problem(at=at, message=message, accepted=accepted))
            break
    return found


def _contents(sent: str) -> dict[str, Path]:
    """Return the files of a path, which may be a folder, by their paths in the rank's folder, in order."""
    path, name = Path(sent), lookup.name_there(sent)
    if path.is_file():
        return {name: path}
    found: dict[str, Path] = {}
    for folder, folders, files in os.walk(path):
        folders[:] = sorted(one for one in folders if not _LEFT_OUT.fullmatch(one))
        for file in sorted(one for one in files if not _LEFT_OUT.fullmatch(one)):
            here = Path(folder, file)
            if here.is_file():
                found[f"{name}/{here.relative_to(path).as_posix()}"] = here
            if len(found) > _MOST_FILES:
                return found
    return found


def _script_problems(config: Config) -> list[Problem]:
    """Find a command's script that is looked for in the rank's own folder, where nothing puts it."""
    script = 0
    if _INTERPRETER.fullmatch(config.argv[0]):
        script = next((place for place, word in enumerate(config.argv) if place and not word.startswith("-")), 0)
        if {"-c", "-m"} & set(config.argv[1:script]) or not config.argv[script].endswith((".py", ".sh")):
            return []
    word = config.argv[script]
    name = str(PurePosixPath(word))
    if config.cwd is not None or word.startswith(("/", "~")) or "{" in word or (not script and "/" not in word):
        return []
    if any(name in _contents(sent) for sent in config.files):
        return []
    message = f"nothing puts {word} into the rank's folder"
    accepted = f"files: [{word}], a path that the hosts have, or cwd: the folder on the hosts that it is in"
    return [Problem(at=("argv", script), message=message, accepted=accepted)]


def launches(config: Config, job: Job, topology: Topology, seed: int) -> list[Launch]:  # noqa: ARG001 - it has its own
    """Return a launch for each rank, a program that starts the command at the gate, and those of its launcher."""
    reading = config.iterations
    started = []
    by, program = config.launcher, config.launcher_program
    if by is not None:
        started = launchers.launches(by, job, topology, program=program, env=config.env)
    files = {name: path for sent in config.files for name, path in _contents(sent).items()}
    for rank in job.ranks:
        values = _values(job, rank, topology)
        reads = rank.rank == 0 or reading.ranks == "all"
        settings: LoggedCommandSettings = {
            "argv": [_filled(word, values) for word in config.argv],
            "cwd": None if config.cwd is None else _filled(config.cwd, values),
            "reads": reads,
            "pattern": reading.pattern,
            "json": None if (paths := reading.json_paths) is None else {str(name): paths[name] for name in paths},
            "file": reading.file,
            "launcher": config.launcher,
            "join_s": launchers.MEET_S,
            "samples": config.samples,
            "first_within_s": reading.first_within,
            "grace_s": config.grace,
        }
        started.append(
            Launch(
                name=f"{job.name}-rank{rank.rank}",
                node=rank.node,
                role="rank",
                argv=shipping.argv(topology.node(rank.node).python, _PROGRAM),
                env={
                    **_env(values),
                    **(torch_ranks.nccl("auto", None, node=topology.node(rank.node)) if rank.device != "cpu" else {}),
                    **nccl_evidence.env(config),
                    **(launchers.rank_env(by, job, rank, topology, program=program) if by is not None else {}),
                    **{name: _filled(value, values) for name, value in config.env.items()},
                },
                files={
                    **shipping.files(_PROGRAM, *launchers.programs(by)),
                    **files,
                    _SETTINGS: json.dumps(settings).encode(),
                },
                ready=Line("^ready"),
                ready_within_s=60.0 if by is None else 2 * launchers.MEET_S,
                gate=True,
                follow=LOG if reads else None,
                stop=Stop(signals=((signal.SIGTERM, config.grace + 2.0),)),
                job=job.name,
                rank=rank.rank,
                flows=launchers.flows(by, job, topology) if rank.rank == 0 else (),
                ports=(RENDEZVOUS_PORT + job.index,) if by is None and rank.rank == 0 and len(job.ranks) > 1 else (),
            )
        )
    return started


_NAMES = (
    *("rank", "world", "local_rank", "local_world", "node", "address", "device", "devices", "gpu"),
    *("master", "port", "hosts", "slots", "python"),
)


def _values(job: Job, rank: Rank, topology: Topology) -> dict[str, str]:
    """Return the values of placeholders for this rank."""
    node = topology.node(rank.node)
    counts = Counter(other.node for other in job.ranks)
    addresses = {name: topology.node(name).address for name in job.nodes}
    values = (
        *(rank.rank, len(job.ranks), rank.local_rank, counts[rank.node], node.name, node.address),
        *(node.first.device, ",".join(node.devices)),
        rank.device.partition(":")[2],
        addresses[job.nodes[0]],
        RENDEZVOUS_PORT + job.index,
        ",".join(addresses.values()),
        ",".join(f"{in_url(address)}:{counts[name]}" for name, address in addresses.items()),
        node.python,
    )
    return dict(zip(_NAMES, map(str, values), strict=True))


def _env(values: Mapping[str, str]) -> dict[str, str]:
    return {
        "RANK": values["rank"],
        "WORLD_SIZE": values["world"],
        "LOCAL_RANK": values["local_rank"],
        "LOCAL_WORLD_SIZE": values["local_world"],
        "MASTER_ADDR": values["master"],
        "MASTER_PORT": values["port"],
        "GLOO_SOCKET_IFNAME": values["devices"],
        "NCCL_SOCKET_IFNAME": f"={values['devices']}",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _filled(text: str, values: Mapping[str, str]) -> str:
    def fill(match: re.Match[str]) -> str:
        name = match[0]
        return name[1:-1] if name.startswith("{{") else values[name[1:-1]]

    return _PLACEHOLDER.sub(fill, text)


def requirements(config: Config, job: Job, topology: Topology) -> list[Requirement]:
    """Return the command's program, if named without a folder or by its whole path, and the device, as requirements."""
    needed = []
    for name in job.nodes:
        program = config.argv[0]
        if not program.startswith("{") and (program.startswith("/") or "/" not in program):
            remedy = f"install {program} on {name}, or give its whole path"
            needed.append(Requirement(node=name, kind="program", what=program, remedy=remedy, needed_by=NAME))
        needed += environments.device_requirements(topology.node(name), needed_by=NAME)
    if config.launcher is not None:
        given = config.launcher_program
        needed += launchers.requirements(config.launcher, job, topology, program=given, by=NAME)
    return needed


def own_pace(config: Config) -> str:  # noqa: ARG001 - of every one
    return "the command"


def remarks(config: Config) -> list[str]:
    """Return a remark where iterations have no time of their own."""
    reading = config.iterations
    names = set(reading.json_paths or ()) | set(re.compile(reading.pattern or "").groupindex)
    if {"seconds", "milliseconds"} & names:
        return []
    how = "(?P<seconds>...) in its pattern" if reading.pattern is not None else "seconds in its JSON"
    return [f"an iteration lasts from one line that matches to the next; {how} would take the time that a line tells"]


def theory(config: Config, job: Job, topology: Topology) -> Theory | None:  # noqa: ARG001 - nobody knows what it sends
    return None


def read(output: LaunchOutput) -> Mapping[str, Columns]:
    tables = read_iterations(output, unknown=_UNKNOWN)
    for number, line in enumerate(lines.texts(output.folder / ODD_LINES), start=1):
        output.unread.add(ODD_LINES, "lines of iterations without a number", line=number, text=line)
    return {**tables, **read_profiles(output, tables["iterations"]), **read_nccl(output)}
