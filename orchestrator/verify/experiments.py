"""What is measured on a testbed to judge claims: experiments as data, on the testbed's own hosts; pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from orchestrator.core.opendata import YamlMapping
from orchestrator.parts.topology import Topology

LOADS: Mapping[str, float] = MappingProxyType({"at10": 0.1, "at50": 0.5, "at90": 0.9})  # windows, and shares of a link
MOST_HOSTS = 16  # that runs are on; all of them are asked
MOST_RANKS = 3
TRIES = 3  # of a run that other work disturbed
LOAD, CAPTURES, UNDO, BARE, COLLECTED = "load", "captures", "undo", "bare", "collected"
NCCL_TCP, NCCL_RDMA = "nccl-tcp", "nccl-rdma"
METER = "meter"
OPTIONAL = (METER,)  # collectors that are left out where a host cannot have them
UNDO_CONTROL = "reno"  # every kernel has it, and none has it by default

# A rank that only tells the time: what is measured is not the training.
_STEPS = "import time\nwhile True:\n    time.sleep(0.1)\n    print('step', flush=True)"
_GLOO = {"backend": "gloo"}  # also where hosts have GPUs: what passes by the kernel is in no capture
_GPT = {"layers": 3, "hidden": 768, "sequence": 512, "vocabulary": 50257}
# Models of few tensors and long cycles, so that what frameworks say to each other besides weighs little.
FRAMEWORKS: Mapping[str, YamlMapping] = MappingProxyType(
    {
        "ddp": {"ddp": {"model": "mobilenet_v2", "compute_time": "40ms", **_GLOO}},
        "fsdp": {"fsdp": {"model": "mobilenet_v2", "compute_time": "60ms", **_GLOO}},
        "p2p": {"p2p": {"model": "mobilenet_v2", "compute_time": "40ms", "strategy": "ring"}},
        "moe": {"moe": {"model": {**_GPT, "layers": 4}, "experts": 6, "compute_time": "60ms", **_GLOO}},
        "ptd": {"ptd": {"model": _GPT, "batch": 4, "microbatches": 4, "compute_time": "60ms", **_GLOO}},
        "horovod": {"horovod": {"model": "vgg16", "compute_time": "60ms", "cycle_time": "10ms"}},
        "horovod-mpi": {
            "horovod": {"model": "vgg16", "compute_time": "60ms", "cycle_time": "10ms", "controller": "mpi"}
        },
        "collective-mpi": {"collective": {"backend": "mpi", "sizes": ["1mb", "2mb"], "repeats": 1}},
        "deepspeed": {"deepspeed": {"model": "mobilenet_v2", "compute_time": "60ms", "bucket": "4mb", **_GLOO}},
        "tensorflow": {
            "tensorflow": {
                "model": "vgg16",
                "compute_time": "60ms",
                "strategy": "multi-worker-mirrored",
                "communication": "ring",
            }
        },
        "tensorflow-ps": {"tensorflow": {"model": "vgg16", "compute_time": "60ms", "strategy": "parameter-server"}},
        "kungfu": {"kungfu": {"model": "mobilenet_v2", "compute_time": "60ms"}},
    }
)
QUICK_FRAMEWORKS = ("ddp", "horovod", "tensorflow")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """An experiment but for its testbed, and how often it is run."""

    name: str
    data: YamlMapping
    runs: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How long windows are, in seconds and iterations, how many runs tell the overhead, and which frameworks run."""

    window_s: float
    iterations: int
    pairs: int
    frameworks: tuple[str, ...]


FULL = Extent(window_s=15.0, iterations=40, pairs=5, frameworks=tuple(FRAMEWORKS))
QUICK = Extent(window_s=4.0, iterations=20, pairs=3, frameworks=QUICK_FRAMEWORKS)


def measurements(topology: Topology, extent: Extent) -> Iterator[Measurement]:
    """Yield what can be measured on these hosts, in the order in which it is; nothing on fewer than two."""
    hosts = [host.name for host in topology.hosts][:MOST_HOSTS]
    if len(hosts) < 2:
        return
    steps = {"command": {"argv": ["{python}", "-u", "-c", _STEPS], "iterations": {"pattern": "^step"}}}
    chain = [
        {"name": name, "traffic": [_iperf(src, dst, share) for src, dst in itertools.pairwise(hosts)]}
        for name, share in LOADS.items()
    ]
    window = {"warmup": 5, "at_most": f"{extent.window_s:g}s"}
    alone = _on(steps, hosts[:1])
    yield _measurement(LOAD, workload=alone, windows=chain, collect=[{"nic": {"hosts": hosts}}], measure=window)
    seen = {"tcpdump": {"hosts": hosts}}, {"nic": {"hosts": hosts}}, {METER: {"hosts": hosts}}
    yield _measurement(CAPTURES, workload=alone, windows=chain, collect=list(seen), measure=window)
    few = hosts[:MOST_RANKS]
    control = {"congestion-control": {"algorithm": UNDO_CONTROL, "hosts": few}}
    yield _measurement(
        UNDO,
        workload=_on(steps, few),
        conditions=[control, {"offloads": {"state": "off", "hosts": few}}],
        collect=[{"nic": {"hosts": few}}],
        measure={"warmup": 2, "at_most": "10min"},
    )
    yield from _trainings(few, extent)
    yield from _on_gpus(topology, extent)


def in_order(measured: Sequence[Measurement]) -> Iterator[Measurement]:
    """Yield each measurement as often as it is run: those that are compared in turn, so that no drift tells."""
    pairs = [one for one in measured if one.runs > 1]
    yield from (one for one in measured if one.runs == 1)
    for _ in range(max((one.runs for one in pairs), default=0)):
        yield from pairs


def _trainings(hosts: list[str], extent: Extent) -> Iterator[Measurement]:
    window = {"warmup": 2, "iterations": extent.iterations, "at_most": "60s"}
    for name in extent.frameworks:
        collect = [{"tcpdump": {"hosts": hosts}}, {"nic": {"hosts": hosts}}]
        yield _measurement(name, workload=_framework(name, hosts), collect=collect, measure=window)
    plain = _on(FRAMEWORKS["ddp"], hosts)
    yield _measurement(BARE, workload=plain, measure=window, runs=extent.pairs)
    collect = [{part: {"hosts": hosts}} for part in ("tcpdump", "nic", "qdisc", "tcp", "cpu")]
    yield _measurement(COLLECTED, workload=plain, collect=collect, measure=window, runs=extent.pairs)


def _on_gpus(topology: Topology, extent: Extent) -> Iterator[Measurement]:
    """Yield trainings over NCCL where two hosts have GPUs, by sockets and, where rails have RDMA devices, by these."""
    able = [host for host in topology.hosts if host.gpus][:MOST_RANKS]
    if len(able) < 2:
        return
    names = [host.name for host in able]
    window = {"warmup": 2, "iterations": extent.iterations, "at_most": "60s"}
    ways = [(NCCL_TCP, "tcp"), *([(NCCL_RDMA, "rdma")] if all(host.rdma for host in able) else [])]
    for name, transport in ways:
        ((part, config),) = FRAMEWORKS["ddp"].items()
        workload = _on({part: {**config, "backend": "nccl", "transport": transport}}, names)
        collect = [
            {"gpu": {"hosts": names}},
            {"nic": {"hosts": names}},
            *([{"tcpdump": {"hosts": names}}] if transport == "tcp" else []),
        ]
        yield _measurement(name, workload=workload, collect=collect, measure=window)


def _measurement(name: str, *, runs: int = 1, **data: Any) -> Measurement:
    """Return a measurement; what is compared has to be valid, and of others single gates judge."""
    about = {"name": f"verify-{name}", "attempts": TRIES if runs > 1 else 1, "validity": {"drift": "ignore"}}
    return Measurement(name=name, data={**about, **data}, runs=runs)


def _framework(name: str, hosts: list[str]) -> YamlMapping:
    """Return the workload of a framework on these hosts, as far as their number decides what it is."""
    if name == "ptd":
        ((part, config),) = FRAMEWORKS[name].items()
        return _on({part: {**config, "pipeline": 2}}, hosts[:2])
    if name == "tensorflow-ps":
        ((part, config),) = FRAMEWORKS[name].items()
        return _on({part: {**config, "servers": hosts[:1]}}, hosts[1:])
    return _on(FRAMEWORKS[name], hosts)


def _on(workload: YamlMapping, hosts: list[str]) -> YamlMapping:
    ((part, config),) = workload.items()
    return {part: {**config, "hosts": hosts}}


def _iperf(src: str, dst: str, share: float) -> YamlMapping:
    return {"iperf": {"from": src, "to": dst, "load": f"{share:.0%}"}}
