"""Manifests of runs and sweeps, the store's index, and SQL: listings, words and rows come out, or our own errors."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import random
from pathlib import Path
from typing import Any

from orchestrator.cli import commandline
from orchestrator.core.errors import OrchError
from orchestrator.store import index, stamps
from orchestrator.store.manifests import coding
from orchestrator.store.manifests.summaries import FORMAT, Summary
from tests.fuzz import mutate
from tests.fuzz.target import Target

TIMES = [f"{what}_s" for which in ("mean", "p50", "p99") for what in (which, f"{which}_low", f"{which}_high")]
WINDOW: dict[str, Any] = {
    "name": "w1", "start_ns": 1_795_000_000_000_000_000, "end_ns": 1_795_000_009_000_000_000, "valid": True,
    "reasons": ["slow"], "iterations": {"training": {"first": 5, "last": 9}}, "wanted_iterations": 5,
    "loads": [{"source": "iperf0", "src": "h2", "dst": "h1", "requested_bps": 1.5e8, "achieved_bps": 1.4e8}],
    "training": [{"job": "training", "iterations": 5, "sent_bytes": 2e6, "theory_bytes": 2e6,
                  **dict.fromkeys(TIMES, 0.2)}],
    "variation": [{"job": "training", "rank": -1, "iterations": 5, "cv": 0.1, "p50_s": 0.2, "p95_s": 0.2, "p99_s": 0.2,
                   "max_s": 0.3, "straggler_share": 0.1, "overlapped": 0.5, "efficiency": None, "orders": 1}],
    "gates": [{"name": "load", "passed": True, "message": "99 %", "required": True, "value": 0.99, "limit": 0.9}],
    "processors": [],
}  # fmt: skip
MANIFEST: dict[str, Any] = {
    "format": FORMAT, "run": "r1", "experiment": "e", "outcome": "completed", "stage": "sealed", "error": None,
    "scale": 100,
    "repetition": 1, "seed": 8, "point": "abc", "argv": ["orch"], "git": {"commit": "8e56fa4", "dirty": False},
    "began_ns": 1_795_000_000_000_000_000, "ended_ns": 1_795_000_010_000_000_000, "phases": {"open": 0.8, "total": 9.5},
    "controller": {"host": "desk", "boot": "b", "pids": "pid:[1]", "pid": 7, "start": 9}, "overhead_s": 1.2,
    "topology": {"kind": "local", "mtu": 1500, "nodes": [{"name": "h1", "kind": "host", "address": "10.0.0.1"}],
                 "links": [{"host": "h1", "device": "eth0", "switch": "s", "switch_port": "p1", "rate": 25e9}]},
    "jobs": [{"name": "training", "workload": "ddp", "model": "resnet50", "compute": "emulated",
              "ranks": [{"rank": 0, "node": "h1"}],
              "theory": {"bytes_per_iteration": 2e6, "parameters": 5, "source": "ring"}}],
    "windows": [WINDOW], "launches": [], "clocks": {}, "notes": ["note"], "valid": True, "reasons": ["why"],
    "sweep": {"id": "20261121-abc", "name": "load", "points": {"w1": {
        "point": "p", "values": {"traffic.0.iperf.load": "8gbit"}, "repetition": 1, "recheck": False}}},
    "artifacts": [{"path": "hosts/h1/tcpdump/capture.pcap", "bytes": 4, "sha256": "0" * 64}], "pruned": [],
    "capture": {"captured": 1, "received": 1, "dropped": 0},
}  # fmt: skip
COMMANDS = (
    ("ls",), ("ls", "--json"), ("ls", "--where", "load<=8gbit", "--since", "7d"), ("ls", "--where", "training.ranks=1"),
    ("show", "r1"), ("show", "r1", "--json"), ("prune", "--drop-after", "1d"), ("query", "select * from runs"),
    ("query", "select * from windows"), ("history", "load"), ("recover",),
)  # fmt: skip
QUERIES = (
    b"select * from runs",
    b"select experiment, avg(mean_s) from windows where valid group by 1 order by 2",
    b"select count(*) from iterations join runs using (run)",
    b"with a as (select 1) select * from a, windows",
    b"select unnest(range(10))",
    b"describe runs",
    b"select 'a' || path from runs limit 1 -- x",
)
SQL = (
    *mutate.TEXT,
    b"select ",
    b" from ",
    b"runs",
    b"windows",
    b"(",
    b")",
    b";",
    b"--",
    b"/*",
    b"::int",
    b" union all ",
    b"null",
    b"1/0",
    b"'",
    b"cast(1e99 as int)",
    b"$1",
    b"?",
    b" cross join runs",
    b"iterations",
)
ARGUMENTS = (  # what stands before an argument, and behind it
    (("ls", "--since"), ()), (("ls", "--where"), ()), (("prune", "--dry-run", "--keep"), ()),
    (("prune", "--dry-run", "--drop-after"), ()), (("show",), ()), (("history",), ()), (("compare", "r1"), ()),
    (("ls", "--experiment"), ()), (("query", "select * from runs", "--where"), ()),
)  # fmt: skip
WORDS = (
    b"14d",
    b"7d",
    b"12h",
    b"2026-11-20",
    b"2026-11-20T18:00",
    b"load<=8gbit",
    b"model=vgg16",
    b"50gb",
    b"r1",
    b"training.ranks>=1",
    b"1e3mb",
    b"last",
    b"load@2026-11-20",
    b"e/r1",
    b"0001-01-01",
    b"8gbit",
)
VALUES = ("h1", "w1", "training", "../../x", 1_795_000_000_000_000_000, 0.2, {"w1": {}}, "r1.partial")


def _manifest(source: random.Random) -> bytes:
    """Which command, in a byte, and the manifest that it meets."""
    data = mutate.text(source, mutate.value(source, MANIFEST, VALUES))
    if source.random() < 0.1:
        data = mutate.havoc(source, (data,))
    return bytes([source.randrange(2 * len(COMMANDS))]) + data


parser = functools.cache(commandline.build_parser)


def _told(argv: tuple[str, ...], folder: Path) -> None:
    """What a command does, without what the command line adds to each."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            arguments = parser().parse_args([*argv, "--results", str(folder)])
        except SystemExit:  # an option, not SQL
            return
        with contextlib.suppress(OrchError):
            assert arguments.action(arguments) in (0, 1, 2, 3, 4)


def _store(data: bytes, folder: Path) -> None:
    place = data[0] if data else 0
    run = folder / "e" / ("r1" if place < len(COMMANDS) else "r1.partial")
    for name in ("r1", "r1.partial"):
        (folder / "e" / name / stamps.MANIFEST).unlink(missing_ok=True)
    (run / "hosts").mkdir(parents=True, exist_ok=True)
    (run / stamps.MANIFEST).write_bytes(data[1:])
    _told(COMMANDS[place % len(COMMANDS)], folder)


def _index(data: bytes, folder: Path) -> None:
    run = folder / "e" / "r1"
    run.mkdir(parents=True, exist_ok=True)
    path = run / stamps.MANIFEST
    path.write_text(json.dumps(MANIFEST))
    stat = path.stat()
    stamp = json.dumps([stat.st_mtime_ns, stat.st_size, stat.st_ino]).encode()
    (folder / index.FILE).write_bytes(data.replace(b'"STAMP"', stamp))
    _told(("ls",), folder)


def _indices(source: random.Random) -> bytes:
    brief = json.loads(coding.encoded(coding.decoded(json.dumps(MANIFEST).encode(), Summary)))
    good = {"format": index.FORMAT, "runs": {"e/r1": {"stamp": "STAMP", "manifest": brief, "problem": ""}}}
    data = mutate.text(source, mutate.value(source, good, VALUES))
    return mutate.havoc(source, (data,)) if source.random() < 0.2 else data


def _at_rest(folder: Path) -> None:
    """A store with one good run."""
    run = folder / "e" / "r1"
    if not run.exists():
        run.mkdir(parents=True)
        (run / stamps.MANIFEST).write_text(json.dumps(MANIFEST))


def _query(data: bytes, folder: Path) -> None:
    _at_rest(folder)
    _told(("query", data.decode(errors="replace")), folder)


def _argue(data: bytes, folder: Path) -> None:
    """An argument, behind a byte that says of which command."""
    before, after = ARGUMENTS[(data[0] if data else 0) % len(ARGUMENTS)]
    text = data[1:].decode(errors="surrogateescape").replace("\0", "")  # which the kernel lets no argument have
    _at_rest(folder)
    _told((*before, text, *after), folder)


def _arguments(source: random.Random) -> bytes:
    return bytes([source.randrange(len(ARGUMENTS))]) + mutate.havoc(source, WORDS, (*mutate.TEXT, *WORDS))


TARGETS = (
    Target(name="argument", make=_arguments, read=_argue, ours=(), share=20),
    Target(name="manifest", make=_manifest, read=_store, ours=(), share=40),
    Target(name="index", make=_indices, read=_index, ours=(), share=20),
    Target(name="query", make=lambda source: mutate.havoc(source, QUERIES, SQL), read=_query, ours=(), share=10),
)
