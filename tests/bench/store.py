"""The results store at size: 10,000 runs listed and filtered; a year of nights queried, here and over S3."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from orchestrator.store import rundir
from orchestrator.store.stamps import MANIFEST
from tests.bench import a_year
from tests.bench.commands import call, orch_argv
from tests.bench.figure import Figure, Settings
from tests.bench.run_manifests import manifest_of

GOAL_S = 2.0


def measure(settings: Settings) -> Iterator[Figure]:
    """Time whole `orch ls` commands on generated manifests of the size that real ones have."""
    count = settings.times(10_000, 1_000)
    results = settings.scratch / "results"
    size = make_store(results, count)
    note = f"{count:,} runs, manifests of {size / 1e3:.0f} kB"
    listing = orch_argv("ls", "--results", str(results))
    first = call(listing, within_s=600.0)
    yield Figure(what="orch ls, the first time: the index is made", unit="s", values=(first.seconds,), note=note)
    times = settings.times(5, 2)
    for what, more in (
        ("orch ls", ()),
        ("orch ls --where load<=8gbit --valid --since", ("--where", "load<=8gbit", "--valid", "--since", "2020-01-01")),
        ("orch ls --experiment", ("--experiment", "e7")),
    ):
        found = [call([*listing, *more], within_s=120.0) for _ in range(times)]
        lines = len(found[0].stdout.splitlines())
        seconds = tuple(done.seconds for done in found)
        yield Figure(what=what, unit="s", values=seconds, against="goal", reference=(GOAL_S,), note=f"{lines:,} lines")
    began = time.perf_counter()
    read = sum(1 for _ in rundir.entries(results))
    took = time.perf_counter() - began
    yield Figure(what="every manifest read, no index", unit="s", values=(took,), note=f"{read:,} manifests")
    shutil.rmtree(results)
    yield from a_year.measure(settings)


def make_store(results: Path, count: int) -> int:
    """Sealed runs of several experiments; gives the bytes of one manifest."""
    for number in range(count):
        manifest = manifest_of(number)
        folder = results / manifest["experiment"] / manifest["run"]
        folder.mkdir(parents=True)
        text = json.dumps(manifest, indent=1)
        (folder / MANIFEST).write_text(text)
    return len(text)
