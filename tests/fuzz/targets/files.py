"""YAML files and `--set` options: an experiment, sweep, paper or inventory comes out, or mistakes with their places."""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from orchestrator.core.errors import ConfigError, TestbedError
from orchestrator.experiment import documents, fitting, loading, paperfile, plan, sweepfile, validation
from orchestrator.experiment.documents import Document
from orchestrator.testbed import inventory
from orchestrator.testbed.inventory import Inventory
from tests.fuzz import mutate
from tests.fuzz.target import Target

PLAYBOOKS = Path(__file__).parents[3] / "playbooks"
NAME = "fuzz.yaml"
RICH = b"""\
name: rich
testbed:
  local: {hosts: [a, b, c], link: 1gbit, links: {b: 500mbit}, scale: 5, mtu: 9000, queue: 2ms}
conditions: [congestion-control: {algorithm: bbr, hosts: [a]}, rate: {host: b, rate: 100mbit, where: switch-port}]
jobs:
  - {name: one, workload: {ddp: &ddp {model: vgg16, hosts: [a, b], env: {A: "1"}}}}
  - {name: two, workload: {ddp: {<<: *ddp, compute_time: 50ms}}}
windows:
  - {name: quiet}
  - name: loud
    traffic: [iperf: {from: a, to: c, load: 80mbit}]
    measure: {at_most: 10s}
collect: [cpu, tcpdump: {hosts: [a, switch], rotate: 5mb}]
measure: {iterations: 30}
validity: {load: as-achieved, clock: 1ms}
"""
SWEEP = b"""\
name: s
mode: windows
repetitions: 2
recheck: 1
axes:
  workload.ddp.model: [resnet50, vgg16]
zip: [{traffic.0.iperf.load: {from: 0, to: 4, step: 2, unit: gbit}, measure.iterations: [10, 20, 30]}]
exclude: [{model: vgg16, load: ">3gbit"}]
experiment:
  name: e
  testbed: {local: {hosts: 3, link: 10gbit, scale: 10}}
  workload: {ddp: {model: resnet50, hosts: [h1, h2]}}
  traffic: [iperf: {from: h1, to: h3, load: 1gbit}]
  measure: {iterations: 5}
"""
WORDS = (
    *mutate.TEXT,
    *(b"&a ", b"*a", b"<<: *a", b"<<: ", b"!!", b"!!int ", b"!!python/object:os.system ", b"? ", b"| \n", b"> "),
    *(b"vars: ", b"include: ", b"include: fuzz.yaml\n", b"$count", b"${", b"$$", b"~x/", b"../", b"type: list"),
    *(b"---\n", b"...\n", b"%YAML 1.2\n", b"yes", b"1:30", b"010", b"2024-13-45", b"1e999gbit", b"0gbit", b"h9"),
    *(b"switch", b"name", b"hosts: ", b"traffic: ", b"windows:\n", b"jobs:\n", b"inventory: ", b"count: 999999999"),
    *(b"step: 0.0000001", b"hosts: 99999999", b"from: ", b"to: ", b"named: ", b"recheck: 9", b"repetitions: 1000"),
)
VALUES = (
    "h1",
    "h9",
    "switch",
    ["h1", "h1"],
    "8gbit",
    "1e400gbit",
    "-1s",
    "0gbit",
    10**9,
    10**15,
    {"from": 0, "to": 9},
    "resnet50",
    {"ddp": {"model": "vgg16"}},
    {"local": {"hosts": 9}},
    "*",
    "a.b",
    "traffic.0.iperf.load",
    {"from": 0, "to": 1e9, "step": 1e-9},
    {"from": 0, "to": 1, "count": 10**12},
)
PLACE = re.compile(r"[^\n]*?((?:fuzz|base)\.yaml:\d+:\d+|--set .*|[\w/.-]+\.yaml): ", re.DOTALL)


@functools.cache
def _seeds(*folders: str) -> tuple[bytes, ...]:
    found = [path.read_bytes() for folder in folders for path in sorted((PLAYBOOKS / folder).rglob("*.yaml"))]
    return tuple(found)


@functools.cache
def _good(seeds: tuple[bytes, ...]) -> tuple[Any, ...]:
    return tuple(yaml.safe_load(seed) for seed in seeds)


def _made(source: random.Random, seeds: Sequence[bytes]) -> bytes:
    if source.random() < 0.5:
        return mutate.havoc(source, seeds, WORDS)
    return _yaml(mutate.text(source, mutate.value(source, source.choice(_good(tuple(seeds))), VALUES)))


def _yaml(text: bytes) -> bytes:
    """JSON whose numbers are YAML's too: that wants a point in them, and other words for what is none."""
    text = re.sub(rb"(?<=[ \[])(-?\d+)(?=e[-+])", rb"\1.0", text)
    return text.replace(b"-Infinity", b"-.inf").replace(b"Infinity", b".inf").replace(b"NaN", b".nan")


def _placed(error: ConfigError) -> None:
    """A mistake is told in one line each, which begins with its place, and in few words."""
    if not PLACE.match(str(error)):
        raise AssertionError(f"no place in {error!s:.500}") from error
    if max(map(len, str(error).splitlines())) > 2000:
        raise AssertionError(f"a line of {max(map(len, str(error).splitlines()))} characters") from error


def _planned(document: Document, options: Sequence[str] = ()) -> None:
    """What `orch plan` does with an experiment."""
    document = loading.with_hosts(loading.changed(document, options), [Path()])
    experiment = loading.validated(document, [Path()])
    plan.build(fitting.fitted(experiment, document.place).model_copy(update={"repetitions": 1}))


def _experiment(data: bytes, _: Path) -> None:
    try:
        _planned(documents.parse(data, name=NAME, needs="all"))
    except ConfigError as error:
        _placed(error)


def _inventory(data: bytes, _: Path) -> None:
    try:
        inventory.topology(validation.validate(documents.parse(data, name=NAME, needs="all"), Inventory))
    except ConfigError as error:
        _placed(error)


def _sweep(data: bytes, folder: Path) -> None:
    path = folder / NAME
    path.write_bytes(data)
    try:
        sweepfile.load(path)
    except ConfigError as error:
        _placed(error)


def _study(data: bytes, folder: Path) -> None:
    path = folder / NAME
    path.write_bytes(data)
    (folder / "s.yaml").write_bytes(SWEEP)
    try:
        paperfile.load(path, version="quick")
    except ConfigError as error:
        _placed(error)


def _files(data: bytes, folder: Path) -> None:
    """A file of an experiment that may include others and have variables."""
    path = folder / NAME
    path.write_bytes(data)
    (folder / "base.yaml").write_bytes(RICH)
    try:
        _planned(documents.load(path, needs="all"), ["load=3gbit", "count=12"])
    except ConfigError as error:
        _placed(error)


def _option(data: bytes, _: Path) -> None:
    try:
        _planned(documents.parse(RICH, name=NAME, needs="all"), [data.decode(errors="surrogateescape")])
    except ConfigError as error:
        _placed(error)


OPTIONS = (
    b"measure.iterations=50",
    b"windows.1.traffic.0.iperf.load=8gbit",
    b"testbed.local.hosts=[h1, h2]",
    b"collect.0=cpu",
    b"jobs.0.workload.ddp={model: resnet50}",
    b"name={a: [1, 2]}",
    b"repetitions=3",
)
VARIED = (
    b"name: own\ninclude: [base.yaml]\nvars:\n  load: 2gbit\n  count: {type: integer, default: 9, help: how many}\n"
    b"measure: {iterations: $count}\nseed: $count\nvalidity: {load: null}\njobs: null\nwindows: null\n"
    b"workload: {ddp: {model: resnet50, hosts: [h1, h2], env: {A: 'a$load-${count}$$'}}}\n"
    b"traffic: [{iperf: {from: h1, to: h2, load: $load}}]\n",
)
STUDY = (
    b"name: s\ntitle: t\nshows: x\nsweeps: {quick: [s.yaml]}\n"
    b"printed: {t: {values: {gb: GB}, place: T, rows: [{gb: '1'}]}}\n"
    b"figures: [{title: f, ask: [{sql: select 1}], holds: [{what: w, value: gb, printed: t.gb, within: 3%, because: b, "
    b"fails: {n: [{noise: {column: gb}}]}}]}]\n",
)


def _experiments() -> tuple[bytes, ...]:
    return (RICH, *_seeds("experiments"))


TARGETS = (
    Target(
        name="experiment",
        make=lambda source: _made(source, _experiments()),
        read=_experiment,
        ours=(TestbedError,),
        share=40,
    ),
    Target(name="files", make=lambda source: _made(source, VARIED), read=_files, ours=(), share=20),
    Target(name="sweep", make=lambda source: _made(source, (SWEEP,)), read=_sweep, ours=(), share=10, seconds=60),
    Target(name="study", make=lambda source: _made(source, STUDY), read=_study, ours=(), share=10),
    Target(name="inventory", make=lambda source: _made(source, _seeds("testbeds")), read=_inventory, ours=(), share=40),
    Target(name="option", make=lambda source: mutate.havoc(source, OPTIONS, WORDS), read=_option, ours=(), share=30),
)
