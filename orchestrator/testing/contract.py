"""The contract of parts as checks: each takes a case and raises AssertionError with a sentence where it is broken."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from orchestrator.core.errors import OrchError
from orchestrator.core.fields import Model
from orchestrator.parts import registry
from orchestrator.parts.launch import Change, Launch, Listening, Requirement
from orchestrator.parts.protocols import Demand, Problem
from orchestrator.parts.rows import DESCRIBED, TABLES, Columns
from orchestrator.parts.theory import Theory
from orchestrator.parts.topology import KNOWN_PORTS, TRAFFIC_PORT, Topology
from orchestrator.testing.case import HOSTS, Case, output

SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}")
STOPPED_WITHIN_S = 30.0
HELD_UP_S = 10.0  # after which a reader that waits for a pipe is let go
_VALUES: dict[str, type | tuple[type, ...]] = {"int64": int, "float64": (int, float), "string": str, "bool": bool}


@dataclass(frozen=True, slots=True)
class Check:
    """One check of one part: called with a folder to work in."""

    name: str
    _run: Callable[[Path], None]

    def __str__(self) -> str:
        return self.name

    def __call__(self, scratch: Path) -> None:
        self._run(scratch)


def checks(case: Case) -> list[Check]:
    """Return every check that a part of this kind has to pass, on each of its topologies where that matters."""
    found = [Check(name, partial(held, case)) for name, held in _of(case, _ONCE)]
    for where, topology in case.topologies.items():
        found += [Check(f"{name}-{where}", partial(_on, held, case, topology)) for name, held in _of(case, _ON_EACH)]
    return found


def _on(held: Callable[[Case, Topology], None], case: Case, topology: Topology, _: Path) -> None:
    held(case, topology)


def _of(case: Case, held: list[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield the checks that apply to a kind of part, by readable names."""
    for about, function in held:
        if about in ("all", case.kind) or (about == "reads" and case.reads):
            yield function.__name__.strip("_").replace("_", "-"), function


def _expect(held: object, what: str) -> None:
    if not held:
        raise AssertionError(what)


def _found_by_its_name(case: Case, _: Path) -> None:
    _expect(case.name == case.part.NAME, f"NAME is {case.part.NAME!r}")
    _expect(registry.by_label(f"{case.kind}.{case.name}") is case.part, "a manifest's label does not find it")
    _expect(re.fullmatch(r"[a-z][a-z0-9-]*", case.name), "accepted: small letters, digits and '-'")


def _configuration_is_strict_frozen_and_described(case: Case, _: Path) -> None:
    model, config = case.part.Config, case.config
    _expect(issubclass(model, Model), "Config is no model of orchestrator.core.fields.Model")
    for inner in models_below(model):
        strict = inner.model_config.get("extra") == "forbid" and inner.model_config.get("frozen") is True
        _expect(strict, f"{inner.__name__} takes unknown keys, or can be changed")
        _expect((inner.__doc__ or "").strip(), f"{inner.__name__} has no docstring")
        for name, field in inner.model_fields.items():
            _expect(field.description, f"{inner.__name__}.{name} has no description (a docstring below it)")
    given = case.example["config"]
    if isinstance(given, dict):
        _refuses(lambda: model.model_validate({**given, "no-such-key": 1}), "an unknown key is taken")
    _refuses(lambda: setattr(config, next(iter(model.model_fields)), None), "its configuration can be changed")
    json.dumps(model.model_json_schema(by_alias=True))


def _refuses(action: Callable[[], object], what: str) -> None:
    try:
        action()
    except ValidationError:
        return
    raise AssertionError(what)


def models_below(model: type[BaseModel], seen: tuple[type[BaseModel], ...] = ()) -> Iterator[type[BaseModel]]:
    """Yield a model and all models in its fields."""
    yield model
    for field in model.model_fields.values():
        for inner in re.findall(r"[\w.]+", repr(field.annotation)):
            module, _, name = inner.rpartition(".")
            found = getattr(sys.modules.get(module), name, None)
            if isinstance(found, type) and issubclass(found, Model) and found not in (model, *seen):
                yield from models_below(found, (*seen, model))


def _there_are_real_samples(case: Case, _: Path) -> None:
    _expect(case.files, f"{case.name} has no real samples of what it reads: put some into {case.samples}")


def _nothing_brought_home_gives_no_rows(case: Case, scratch: Path) -> None:
    for _ in range(2):
        tables = case.part.read(output(scratch))
        _expect(all(_lengths(columns) == {0} for columns in tables.values()), "rows of nothing")
        for file in ("stdout", "stderr"):
            (scratch / file).write_bytes(b"")


def _samples_become_rows_of_known_tables(case: Case, scratch: Path) -> None:
    for at_home, sample in case.brought_home.items():
        shutil.copy(case.samples / sample, scratch / at_home)
    tables = case.part.read(output(scratch))
    _expect(tables, "nothing was read from the samples")
    for table, columns in tables.items():
        _expect(table in TABLES, f"there is no table {table}: accepted: {', '.join(TABLES)}")
        lacking = [name for name in DESCRIBED[table].required if name not in columns]
        unknown = [name for name in columns if name not in TABLES[table]]
        _expect(not lacking, f"{table} lacks {', '.join(lacking)}: a reader has to give these columns")
        _expect(not unknown, f"{table} has no columns {', '.join(unknown)}: accepted: {', '.join(TABLES[table])}")
        _expect(len(_lengths(columns)) == 1 and _lengths(columns) != {0}, f"columns of {table}: {_lengths(columns)}")
        for column, values in columns.items():
            value = values[0].item() if hasattr(values[0], "item") else values[0]
            right = value is None or isinstance(value, _VALUES[TABLES[table][column]])
            _expect(right, f"{table}.{column} holds {value!r}")


def _lengths(columns: Columns) -> set[int]:
    return {len(values) for values in columns.values()}


def _what_was_cut_short_is_read_as_far_as_it_goes(case: Case, scratch: Path) -> None:
    for cut in (1, 7, 50):
        for at_home, sample in case.brought_home.items():
            whole = (case.samples / sample).read_bytes()
            (scratch / at_home).write_bytes(whole[: max(0, len(whole) - cut)])
        case.part.read(output(scratch))


def _what_is_no_file_is_not_read(case: Case, scratch: Path) -> None:
    """Check that a pipe, link or folder in place of an output is not read; `safepath.opened` opens files alone."""
    kinds: dict[str, Callable[[Path, Path], None]] = {
        "pipe": lambda path, _: os.mkfifo(path),
        "link": lambda path, sample: path.symlink_to(sample),
        "folder": lambda path, _: path.mkdir(),
    }
    for kind, leave in kinds.items():
        folder = scratch / kind
        folder.mkdir()
        for at_home, sample in case.brought_home.items():
            leave(folder / at_home, (case.samples / sample).resolve())
        freed: list[Path] = []
        timer = threading.Timer(HELD_UP_S, lambda: freed.extend(_freed(folder)))  # noqa: B023 - it is over with the loop
        timer.start()
        try:
            tables = case.part.read(output(folder))
        except (OrchError, OSError):
            continue
        finally:
            timer.cancel()
            _expect(not freed, f"a pipe held it up: {freed}")
        _expect(all(_lengths(columns) == {0} for columns in tables.values()), f"rows of what is a {kind}")


def _freed(folder: Path) -> Iterator[Path]:
    """Unblock readers of pipes in a folder; yield the pipes that had a reader."""
    for path in folder.iterdir():
        with suppress(OSError):
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
            yield path


def _example_has_no_problems_and_makes_the_same_twice(case: Case, topology: Topology) -> None:
    for _ in range(2):
        _expect(case.part.problems(case.config, topology) == [], f"{case.part.problems(case.config, topology)}")
    first, again = case.made(topology), case.made(topology)
    if case.kind == "condition":
        first, again = ((list(map(_told, made[0])), *made[1:]) for made in (first, again))
    _expect(first == again, "it makes another plan the second time")
    _expect(first[0], "it starts and changes nothing")


def _told(change: Change) -> tuple[object, ...]:
    return (change.node, change.name, change.kind, change.read)


def _testbed_without_its_hosts_is_a_problem_with_a_way_out(case: Case, topology: Topology) -> None:
    renamed = replace(
        topology,
        nodes=tuple(replace(node, name=f"x{node.name}") if node.kind == "host" else node for node in topology.nodes),
        links=tuple(replace(link, host=f"x{link.host}") for link in topology.links),
    )
    found = case.part.problems(case.config, renamed)
    names_hosts = any(host in json.dumps(case.example["config"]) for host in HOSTS)
    _expect(found or not names_hosts, "hosts that are not there are no problem")
    for problem in found:
        _expect(isinstance(problem, Problem) and problem.message and problem.accepted, f"{problem!r}")
        _expect(all(isinstance(step, str | int) for step in problem.at), f"{problem.at!r} is no path")


def _launches_can_be_carried_out(case: Case, topology: Topology) -> None:
    launches = case.launches(topology)
    _expect(launches, "it reads what nothing brings home")
    _expect(len({(launch.node, launch.name) for launch in launches}) == len(launches), "two launches of one name")
    for launch in launches:
        _expect(isinstance(launch, Launch), f"{launch!r} is no Launch")
        for what, held in _of_a_launch(case, launch, topology):
            _expect(held, f"{launch.name}: {what}")


def _of_a_launch(case: Case, launch: Launch, topology: Topology) -> Iterator[tuple[str, object]]:
    """Yield the conditions on a launch, each with its message where it does not hold."""
    files, stop = launch.files, launch.stop
    yield "role", launch.role == ("rank" if case.kind == "workload" or launch.wrapped_by else case.kind)
    yield "node", launch.node in {node.name for node in topology.nodes}
    yield "name", SAFE.fullmatch(launch.name)
    yield "argv", launch.argv and all(isinstance(word, str) and "\0" not in word for word in launch.argv)
    yield "env", all(isinstance(word, str) for pair in launch.env.items() for word in pair)
    yield "files", all(_is_safe(name) and (isinstance(it, bytes) or it.is_file()) for name, it in files.items())
    yield "ready_within_s", 0 < launch.ready_within_s <= 600
    yield "nothing asks it to end", stop.signals
    yield "it takes too long to end", stop.drain_s + sum(grace for _, grace in stop.signals) <= STOPPED_WITHIN_S
    yield "follow", launch.follow is None or SAFE.fullmatch(launch.follow)
    isolated = launch.argv[0] != topology.node(launch.node).python or launch.argv[1] == "-I"
    yield "privileged, and it imports what lies in its folder (python without -I)", not launch.privileged or isolated
    if case.kind == "workload":
        yield "job", launch.job == "training"
        yield "ranks wait at the gate, their servers do not", launch.gate == (launch.rank is not None)


def _is_safe(name: str) -> bool:
    """Return whether a file of a launch, perhaps in a folder below, has a name that any host takes."""
    return all(SAFE.fullmatch(part) for part in name.split("/"))


def _what_it_needs_can_be_got(case: Case, topology: Topology) -> None:
    nodes = {node.name for node in topology.nodes}
    for need in case.made(topology)[1]:
        _expect(isinstance(need, Requirement), f"{need!r} is no Requirement")
        _expect(need.node in nodes and need.what and need.remedy and need.needed_by, f"{need!r}")
        _expect(need.python or need.kind != "module", f"{need!r}: a module of which Python")


def _every_rank_is_followed_and_theory_is_positive(case: Case, topology: Topology) -> None:
    launches, _, theory = case.made(topology)
    ranks = sorted(launch.rank for launch in launches if launch.rank is not None)
    _expect(ranks == list(range(len(ranks))), f"ranks are {ranks}")
    _expect(all(launch.follow for launch in launches if launch.rank is not None), "a rank whose log is not followed")
    _expect(any(flow.kind == "training" for launch in launches for flow in launch.flows), "no flow is its training's")
    if theory is not None:
        _expect(isinstance(theory, Theory) and theory.bytes_per_iteration > 0 and theory.source, f"{theory!r}")


def _ports_are_among_those_that_are_known(case: Case, topology: Topology) -> None:
    launches: list[Launch] = case.made(topology)[0]
    ports = {flow.port for launch in launches for flow in launch.flows if flow.port is not None}
    ports |= {launch.ready.port for launch in launches if isinstance(launch.ready, Listening)}
    _expect(ports, "it names no port: the condition `firewall` could not guard it")
    unknown = [port for port in ports if not any(first <= port <= last for first, last in KNOWN_PORTS)]
    _expect(not unknown, f"ports {unknown} are outside of orchestrator/parts/topology.py's KNOWN_PORTS")


def _says_what_it_asks_for_and_stays_on_its_ports(case: Case, topology: Topology) -> None:
    launches, _, demands = case.made(topology)
    _expect(demands, "it demands nothing")
    for demand in demands:
        _expect(isinstance(demand, Demand) and demand.rate > 0 and demand.src != demand.dst, f"{demand!r}")
    flows = [flow for launch in launches for flow in launch.flows]
    _expect({flow.name for flow in flows} == {f"{case.name}0"}, "flows are not called after their source")
    for flow in flows:
        _expect(flow.kind == "cross" and flow.port is not None, f"{flow!r}")
        _expect(TRAFFIC_PORT <= (flow.port or 0) < TRAFFIC_PORT + 16, f"port {flow.port} is another source's")
    receivers = {launch.order for launch in launches if launch.node in {demand.dst for demand in demands}}
    senders = {launch.order for launch in launches if launch.node in {demand.src for demand in demands}}
    _expect(min(receivers) < max(senders), "senders do not wait for receivers")


def _changes_are_named_and_read_by_a_command(case: Case, topology: Topology) -> None:
    changes, needs, _ = case.made(topology)
    _expect(len({change.name for change in changes}) == len(changes), "two changes of one name")
    asked = {(need.node, need.what) for need in needs if need.kind == "program" and need.remedy}
    for change in changes:
        _expect(isinstance(change, Change) and change.kind == case.name and change.read, f"{change!r}")
        reads = [change.read, *([change.hits.read] if change.hits else [])]
        _expect({(change.node, argv[0]) for argv in reads} <= asked, f"{reads} are not among its requirements")
        try:
            change.parse("what no tool prints {")
        except ValueError:
            continue
        raise AssertionError(f"{change.name}: parse takes what no tool prints")


_ONCE: list[tuple[str, Callable[[Case, Path], None]]] = [
    ("all", _found_by_its_name),
    ("all", _configuration_is_strict_frozen_and_described),
    ("all", _there_are_real_samples),
    ("reads", _nothing_brought_home_gives_no_rows),
    ("reads", _samples_become_rows_of_known_tables),
    ("reads", _what_was_cut_short_is_read_as_far_as_it_goes),
    ("reads", _what_is_no_file_is_not_read),
]
_ON_EACH: list[tuple[str, Callable[[Case, Topology], None]]] = [
    ("all", _example_has_no_problems_and_makes_the_same_twice),
    ("all", _testbed_without_its_hosts_is_a_problem_with_a_way_out),
    ("reads", _launches_can_be_carried_out),
    ("all", _what_it_needs_can_be_got),
    ("workload", _every_rank_is_followed_and_theory_is_positive),
    ("workload", _ports_are_among_those_that_are_known),
    ("traffic", _ports_are_among_those_that_are_known),
    ("traffic", _says_what_it_asks_for_and_stays_on_its_ports),
    ("condition", _changes_are_named_and_read_by_a_command),
]
