"""Questions about a year of nights: by run folders, by compacted tables, and over an S3 that answers late."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.bench.commands import ROOT, call, orch_argv, watched
from tests.bench.figure import Figure, Settings
from tests.bench.year import NIGHTLY, make
from tests.unit.s3_server import KEYS

QUERY = "select run, window_name, avg(seconds) from iterations group by all order by all"
JOINED = "select experiment, point, avg(seconds) from iterations join runs using (run) group by all order by all"
WAIT_S = 0.02
GOAL_S, GOAL_BYTES = 0.3, 200e6
COLD_GOAL_S, AGAIN_GOAL_S = 5.0, 1.0
BUCKET = "nights"


def measure(settings: Settings) -> Iterator[Figure]:
    """Whole commands; each question on run folders first, then on the same store compacted, then on a bucket."""
    runs, times = settings.times(6_600, 200), settings.times(5, 2)
    results = settings.scratch / "results"
    make(results, runs)
    note = f"{runs:,} runs"
    folders = {sql: _timed(results, sql, times) for sql in (QUERY, JOINED)}
    (peak,) = _peaks(results, settings.scratch)
    compacting = call(orch_argv("store", "compact", "--results", str(results)), within_s=1800.0)
    yield Figure(what="orch store compact, the first time", unit="s", values=(compacting.seconds,), note=note)
    again = call(orch_argv("store", "compact", "--results", str(results)), within_s=600.0)
    yield Figure(what="orch store compact, nothing new", unit="s", values=(again.seconds,), note=note)
    for what, sql in (("iterations", QUERY), ("iterations joined with runs", JOINED)):
        seconds = _timed(results, sql, times)
        yield Figure(what=f"query {what}", unit="s", values=seconds, against="goal", reference=(GOAL_S,), note=note)
        yield Figure(what=f"query {what}", unit="s", values=seconds, against="run folders", reference=folders[sql])
    compacted = _peaks(results, settings.scratch)
    yield Figure(what="query iterations, peak", unit="bytes", values=compacted, against="goal", reference=(GOAL_BYTES,))
    yield Figure(
        what="query iterations, peak", unit="bytes", values=compacted, against="run folders", reference=(peak,)
    )
    yield from _elsewhere(settings, results, -(-runs // NIGHTLY))
    shutil.rmtree(results)


def _timed(results: Path, sql: str, times: int) -> tuple[float, ...]:
    argv = orch_argv("query", sql, "--csv", "--results", str(results))
    return tuple(call(argv, within_s=600.0).seconds for _ in range(times + 1))[1:]  # the first fills the page cache


def _peaks(results: Path, scratch: Path) -> tuple[float, ...]:
    return (float(watched(["query", QUERY, "--csv", "--results", str(results)], scratch)[1]["peak_bytes"]),)


def _elsewhere(settings: Settings, results: Path, nights: int) -> Iterator[Figure]:
    with _served() as (url, server):
        environment = {**os.environ, **KEYS, "AWS_ENDPOINT_URL": url, "XDG_CACHE_HOME": str(settings.scratch / "cache")}
        call(_python(f"import fsspec; fsspec.filesystem('s3').mkdir('{BUCKET}')"), env=environment)
        place = f"s3://{BUCKET}/results"
        argv = orch_argv("store", "push", place, "--without-captures", "--results", str(results))
        pushed = call(argv, within_s=1800.0, env=environment)
        yield Figure(what="orch store push, no wait", unit="s", values=(pushed.seconds,))
        before = _told(server, WAIT_S)
        for what, goal_s in (("cold", COLD_GOAL_S), ("again", AGAIN_GOAL_S)):
            done = call(orch_argv("query", QUERY, "--csv", "--results", place), within_s=600.0, env=environment)
            requests = _told(server, WAIT_S)
            note = f"{requests - before} requests of {WAIT_S * 1e3:.0f} ms and more, {nights} nights"
            yield Figure(
                what=f"query over S3, {what}", unit="s", values=(done.seconds,), against="goal", reference=(goal_s,),
                note=note,
            )  # fmt: skip
            before = requests


@contextmanager
def _served() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    argv = [sys.executable, "-m", "tests.unit.s3_server"]
    with subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin
        assert server.stdout
        try:
            yield server.stdout.readline().strip(), server
        finally:
            server.stdin.close()


def _told(server: subprocess.Popen[str], wait_s: float) -> int:
    """Set how long it waits; the number of requests so far."""
    assert server.stdin
    assert server.stdout
    server.stdin.write(f"{wait_s}\n")
    server.stdin.flush()
    return int(server.stdout.readline())


def _python(code: str) -> Sequence[str]:
    return [sys.executable, "-c", code]
