"""Whatever bytes a file holds: an experiment comes out of it, or one ConfigError with its place; never anything else.

So many, the same each time; ORCH_FUZZ_SECONDS goes on for longer, somewhere else each time.
"""

from __future__ import annotations

import os
import random
import re
import time
from pathlib import Path

import pytest

from orchestrator import config, documents, plan
from orchestrator.errors import ConfigError
from orchestrator.testbed.inventory import Inventory

ROOT = Path(__file__).parents[2]
SEEDS = sorted((ROOT / "playbooks").rglob("*.yaml"))
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
SECONDS = float(os.environ.get("ORCH_FUZZ_SECONDS", "0"))
AT_LEAST = 150
LONGEST_S = 60.0  # of one file, on a busy machine
PLACE = re.compile(r"^(fuzz\.yaml:\d+:\d+|--set .*): ", re.DOTALL)
SPLICES = [
    b"\t", b"\n", b" ", b"  ", b": ", b"- ", b"{", b"}", b"[", b"]", b",", b"#", b"&a ", b"*a", b"<<: *a", b"<<: ",
    b"!!", b"!!int ", b"!!set ", b"!!python/object:os.system ", b"? ", b"| \n", b"> ", b'"', b"'", b"\\", b'"\\ud800"',
    b"---\n", b"...\n", b"%YAML 1.2\n", b"\x00", b"\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\r", b"\xc2\x85",
    "é".encode(), b"~", b"null", b"yes", b"1:30", b"010", b"0x1f", b"1e999", b".nan", b".inf", b"-1", b"0", b"9" * 40,
    b"2024-13-45", b"1e999gbit", b"0gbit", b"h9", b"switch", b"[" * 50, b"name", b"hosts: ",
    b"traffic: ", b"windows:\n", b"jobs:\n", b"inventory: ",
]  # fmt: skip


def mutated(random_: random.Random, seeds: list[bytes]) -> bytes:
    data = bytearray(random_.choice(seeds))
    for _ in range(random_.choice([1, 1, 2, 3, 8, 40])):
        place = random_.randrange(len(data) + 1)
        other = random_.choice(seeds)
        begin = random_.randrange(len(other) + 1)
        way = random_.randrange(6)
        if way == 0:
            del data[place : place + random_.choice([1, 2, 5, 30])]
        elif way == 1:
            data[place:place] = random_.choice(SPLICES)
        elif way == 2 and place < len(data):
            data[place] = random_.randrange(256)
        elif way == 3:
            data[place:place] = other[begin : begin + random_.choice([3, 20, 200])]
        elif way == 4:  # a whole line somewhere else
            lines = bytes(data).splitlines(keepends=True) or [b""]
            lines.insert(random_.randrange(len(lines) + 1), random_.choice(lines))
            data = bytearray(b"".join(lines))
        else:  # one word for another
            words = list(re.finditer(rb"[\w.-]+", bytes(data)))
            if words:
                word = random_.choice(words)
                data[word.start() : word.end()] = random_.choice([random_.choice(SPLICES), random_.choice(words)[0]])
    return bytes(data)


def examined(raw: bytes, option: str | None) -> None:
    """What `orch plan` does with a file."""
    document = documents.parse(raw, name="fuzz.yaml", needs="all")
    if "testbed" in document.data:
        options = [option] if option else []
        experiment, document = config.experiment_of(document, Path("fuzz.yaml"), options)
        topology = plan.topology_of(experiment)
        plan.refuse_problems(experiment, topology, document.place)
        plan.build(experiment.model_copy(update={"repeat": 1}))
    else:
        config.validate(document, Inventory)


@pytest.mark.parametrize("seed", range(2))
def test_only_an_experiment_or_a_mistake_with_its_place_comes_out(seed):
    if "ORCH_FUZZ_SECONDS" in os.environ:  # somewhere new each time
        seed = time.time_ns()
    random_ = random.Random(seed)  # noqa: S311 - to find mistakes, not to keep secrets
    seeds = [RICH, *(path.read_bytes() for path in SEEDS)]
    rejected = planned = 0
    ends = time.monotonic() + SECONDS / 2
    while time.monotonic() < ends or rejected + planned < AT_LEAST:
        raw = mutated(random_, seeds)
        option = None
        if random_.random() < 0.3:
            key = ".".join(random_.choices(["measure", "traffic", "0", "iperf", "load", "x", "", "²", "9"], k=3))
            option = f"{key}={mutated(random_, [b'{a: 1}', b'8gbit', b'[h1]', b'3'])!r}"
        began = time.process_time()
        try:
            examined(raw, option)
            planned += 1
        except ConfigError as error:
            rejected += 1
            if not option and not all(PLACE.match(line) for line in str(error).splitlines()):
                raise AssertionError(f"no place in {error!s} of {raw!r}") from error
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__} from {raw!r} with {option!r}") from error
        assert time.process_time() - began < LONGEST_S, raw
    assert rejected > 10
    assert planned > 0
