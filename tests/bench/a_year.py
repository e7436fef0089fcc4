"""Questions about nights that grow to a year: by run folders, by compacted tables, and over an S3 that answers late."""

from __future__ import annotations

import itertools
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.store.compact.catalogue import FOLDER
from tests.bench.commands import ROOT, call, orch_argv, watched
from tests.bench.figure import Figure, Settings
from tests.bench.year import NIGHTLY, make
from tests.helpers.s3_server import KEYS

QUERY = "select run, window_name, avg(seconds) from iterations group by all order by all"
QUESTIONS = {
    "iterations": QUERY,
    "iterations joined with runs": "select experiment, point, avg(seconds) from iterations join runs using (run) "
    "group by all order by all",
}
DUCKDB = "import duckdb; duckdb.connect().execute('select 1').fetchall()"
SIZES, FEW = (330, 1_650, 6_600), (40, 200)  # runs: half a month, a quarter and a year of nights
WAIT_S = 0.02
GOAL_S, GOAL_BYTES, LISTED_GOAL_S = 0.3, 200e6, 0.1
COLD_GOAL_S, AGAIN_GOAL_S = 5.0, 1.0
BUCKET = "nights"


@dataclass(frozen=True, slots=True)
class _Nights:
    """A store of so many runs, and how often each question is asked."""

    results: Path
    runs: int
    times: int
    scratch: Path

    def named(self, what: str) -> str:
        return f"{self.runs:,} runs: {what}"


def measure(settings: Settings) -> Iterator[Figure]:
    """Whole commands on a store that grows: on run folders, on the same store compacted, and on a bucket."""
    results, sizes = settings.scratch / "results", FEW if settings.quick else SIZES
    with _served() as (url, server):
        environment = {**os.environ, **KEYS, "AWS_ENDPOINT_URL": url, "XDG_CACHE_HOME": str(settings.scratch / "cache")}
        call(_python(f"import fsspec; fsspec.filesystem('s3').mkdir('{BUCKET}')"), env=environment)
        for there, runs in itertools.pairwise((0, *sizes)):
            make(results, runs, there=there)
            nights = _Nights(results, runs, settings.times(5, 2), settings.scratch)
            yield from _here(nights)
            yield from _elsewhere(nights, server, environment)
    shutil.rmtree(results)


def _here(nights: _Nights) -> Iterator[Figure]:
    with _uncompacted(nights):
        folders = {what: _timed(nights, "query", sql, "--csv") for what, sql in QUESTIONS.items()}
        peak = _peak(nights)
    taken_s: list[float] = []
    for what in ("what is new", "nothing new"):
        before = _children_s()
        done = call(orch_argv("store", "compact", "--results", str(nights.results)), within_s=1800.0)
        taken_s.append(_children_s() - before)
        yield Figure(what=nights.named(f"orch store compact, {what}"), unit="s", values=(done.seconds,))
    yield _rate(nights, taken_s[0])
    start = tuple(call(_python(DUCKDB)).seconds for _ in range(nights.times))
    for what, sql in QUESTIONS.items():
        seconds = _timed(nights, "query", sql, "--csv")
        for against, reference in (("goal", (GOAL_S,)), ("run folders", folders[what]), ("DuckDB's select 1", start)):
            yield Figure(
                what=nights.named(f"query {what}"), unit="s", values=seconds, against=against, reference=reference
            )
    compacted = _peak(nights)
    for against, reference in (("goal", (GOAL_BYTES,)), ("run folders", peak)):
        yield Figure(
            what=nights.named("query iterations, peak"),
            unit="bytes",
            values=compacted,
            against=against,
            reference=reference,
        )
    listed = _timed(nights, "ls")
    yield Figure(what=nights.named("orch ls"), unit="s", values=listed, against="goal", reference=(LISTED_GOAL_S,))


def _rate(nights: _Nights, ours_s: float) -> Figure:
    """Bytes of runs' tables that are compacted in a second of a processor, and that DuckDB's COPY copies."""
    files = list(nights.results.glob("*/*/tables/*.parquet"))
    size = sum(path.stat().st_size for path in files) / 1e6
    copied = nights.scratch / "copied.parquet"
    copies = [
        f"copy (select * from read_parquet('{nights.results}/*/*/tables/{table}.parquet')) "  # noqa: S608 - our own paths
        f"to '{copied}' (compression lz4_raw)"
        for table in sorted({path.stem for path in files})
    ]
    before = _children_s()
    call(_python(f"import duckdb; duckdb.connect().execute({';'.join(copies)!r})"), within_s=1800.0)
    theirs_s = _children_s() - before
    copied.unlink()
    return Figure(
        what=nights.named("orch store compact, of all runs' tables, in a processor second"),
        unit="MB",
        values=(size / ours_s,),
        against="DuckDB's COPY of the same files",
        reference=(size / theirs_s,),
    )


def _children_s() -> float:
    """Processor time of all processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextmanager
def _uncompacted(nights: _Nights) -> Iterator[None]:
    """The store as if it had never been compacted."""
    there, aside = nights.results / FOLDER, nights.scratch / FOLDER
    there.mkdir(exist_ok=True)
    there.rename(aside)
    try:
        yield
    finally:
        aside.rename(there)


def _timed(nights: _Nights, *arguments: str) -> tuple[float, ...]:
    argv = orch_argv(*arguments, "--results", str(nights.results))
    return tuple(call(argv, within_s=600.0).seconds for _ in range(nights.times + 1))[1:]  # the first fills caches


def _peak(nights: _Nights) -> tuple[float, ...]:
    watching = watched(["query", QUERY, "--csv", "--results", str(nights.results)], nights.scratch)
    return (float(watching[1]["peak_bytes"]),)


def _elsewhere(nights: _Nights, server: subprocess.Popen[str], environment: Mapping[str, str]) -> Iterator[Figure]:
    """The bucket has what was pushed of fewer runs; the cache is emptied, so that the first question finds nothing."""
    place = f"s3://{BUCKET}/results"
    _told(server, 0.0)
    argv = orch_argv("store", "push", place, "--without-captures", "--results", str(nights.results))
    pushed = call(argv, within_s=3600.0, env=environment)
    yield Figure(what=nights.named("orch store push, no wait"), unit="s", values=(pushed.seconds,))
    shutil.rmtree(environment["XDG_CACHE_HOME"], ignore_errors=True)
    before = _told(server, WAIT_S)
    for what, goal_s in (("cold", COLD_GOAL_S), ("again", AGAIN_GOAL_S)):
        done = call(orch_argv("query", QUERY, "--csv", "--results", place), within_s=600.0, env=environment)
        requests = _told(server, WAIT_S)
        note = f"{requests - before} requests of {WAIT_S * 1e3:.0f} ms and more, {-(-nights.runs // NIGHTLY)} nights"
        yield Figure(
            what=nights.named(f"query over S3, {what}"),
            unit="s",
            values=(done.seconds,),
            against="goal",
            reference=(goal_s,),
            note=note,
        )
        before = requests


@contextmanager
def _served() -> Iterator[tuple[str, subprocess.Popen[str]]]:
    argv = [sys.executable, "-m", "tests.helpers.s3_server"]
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
