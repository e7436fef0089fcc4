"""How long single flows of the flow generator take by their size, beside the same flows one at a time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cross_traffic import flow_records
from cross_traffic.agents import flow_drawing
from tests.bench import flow_generator, local, one_at_a_time
from tests.bench.commands import CommandError
from tests.bench.figure import Figure, Settings
from tests.bench.flow_generator import Pair

LOADS = ((1e9, 12), (5e9, 6), (10e9, 6))  # bit/s, seconds
CLASSES = (
    ("below 10 kB", 0, 10e3),
    ("10 to 100 kB", 10e3, 100e3),
    ("100 kB to 1 MB", 100e3, 1e6),
    ("above", 1e6, np.inf),
)

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """Flows that were done: their bytes, what each took, and processor time of both ends."""

    sizes: Ints
    took_s: Floats
    cpu_s: float


def measure(settings: Settings) -> Iterator[Figure]:
    """Web search by one worker, over kept connections and with a new one for each flow."""
    with local.machine_to_ourselves(), flow_generator.pair(settings.scratch) as between:
        for load, seconds in LOADS:
            streams = flow_generator.websearch(load, settings.times(seconds, 1))
            for pool in (True, False):
                ours = generated(between, streams, pool=pool)
                alone = sent_alone(between, streams, pool=pool)
                yield from _compared(f"{load / 1e9:g} Gbit/s, {'kept' if pool else 'new'}", ours, alone)


def generated(between: Pair, streams: Sequence[Mapping[str, Any]], *, pool: bool) -> Taken:
    """What flows of the generator take, from their start, or their connection's, to their acknowledgement."""
    sent = flow_generator.send(between, streams, pool=pool)
    logs = sorted((between.scratch / "sender").glob("flows.*.bin"))
    rows = np.concatenate([flow_records.records(log)[1] for log in logs])
    rows = rows[rows["error"] == 0]
    return Taken(sizes=rows["size"], took_s=(rows["acked"] - rows["start"]) / 1e9, cpu_s=sent.cpu_s)


def sent_alone(between: Pair, streams: Sequence[Mapping[str, Any]], *, pool: bool) -> Taken:
    """What the same flows take one at a time, over blocking sockets."""
    flows, took = between.scratch / "flows", between.scratch / "took"
    events = [(at, size) for at, size, _ in flow_drawing.merged([flow_drawing.drawn(one) for one in streams])]
    flows.write_bytes(b"".join(one_at_a_time.FLOW.pack(*event) for event in events))
    sink = _process(between.sink, "sink")
    try:
        if sink.stdout is None or sink.stdout.readline() != b"listening\n":
            raise CommandError("the sink of single flows did not get ready")
        source = _process(between.sender, "source", str(flows), str(took), "kept" if pool else "new")
        _, source.returncode, used = os.wait4(source.pid, 0)
    finally:
        sink.terminate()
        _, sink.returncode, used_there = os.wait4(sink.pid, 0)
    if source.returncode:
        raise CommandError(f"the source of single flows ended with {source.returncode}")
    return Taken(
        sizes=np.array([size for _, size in events]),
        took_s=np.frombuffer(took.read_bytes(), "<i8") / 1e9,
        cpu_s=used.ru_utime + used.ru_stime + used_there.ru_utime + used_there.ru_stime,
    )


def _process(namespace: str, role: str, *rest: str) -> subprocess.Popen[bytes]:
    program = [sys.executable, "-I", "-S", "-B", str(Path(one_at_a_time.__file__))]
    argv = [*program, role, flow_generator.DST, str(flow_generator.PORT), *rest]
    return subprocess.Popen(["ip", "netns", "exec", namespace, *argv], stdout=subprocess.PIPE)


def _compared(what: str, ours: Taken, alone: Taken) -> Iterator[Figure]:
    for name, low, high in CLASSES:
        mine, floor = (one.took_s[(one.sizes >= low) & (one.sizes < high)] * 1e6 for one in (ours, alone))
        for label, share in ((f"{what}, {name}, p50", 50), ("  p99", 99)):
            yield Figure(
                what=label,
                unit="us",
                values=(float(np.percentile(mine, share)),),
                against="one at a time",
                reference=(float(np.percentile(floor, share)),),
                note=f"{len(mine):,} flows",
            )
