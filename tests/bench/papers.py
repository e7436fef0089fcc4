"""How long the quick study of each paper takes, how many of its windows are valid, and what its page says.

Studies are measured one by one into `results/bench-papers`, calibration first; a later call goes on from there and
does not repeat what is measured. Pages stand beside the results.
"""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

from orchestrator.experiment import paperfile
from orchestrator.store import index
from tests.bench.commands import INVALID, ROOT, call, orch_argv
from tests.bench.figure import Figure, Settings, Table

STORE = ROOT / "results" / "bench-papers"
PAPERS = ("farhat", "hashemi", "li", "salamy", "zerwas", "cassini")
GOAL_S = 600.0
_COUNTS = re.compile(r"(\d+) held, (\d+) missed, (\d+) not compared")


def measure(settings: Settings) -> Iterator[Figure | Table]:
    """Return seconds of each quick study, and a table of its windows and verdicts; `--quick` measures the first."""
    rows = []
    for name in PAPERS[: settings.times(len(PAPERS), 1)]:
        kept = STORE / f"{name}.json"
        seconds = json.loads(kept.read_text()) if kept.is_file() else _study(name)
        kept.write_text(json.dumps(seconds) + "\n")
        page = STORE / f"study-{name}-quick.html"
        found = _COUNTS.search(page.read_text())
        valid, windows = _windows(name)
        rows.append((name, valid, windows, *(map(int, found.groups()) if found else (0, 0, 0)), round(seconds)))
        yield Figure(
            what=f"{name}: quick study",
            unit="s",
            values=(seconds,),
            against="goal",
            reference=(GOAL_S,),
            note=f"{valid} of {windows} windows valid",
            tabled=True,
        )
    columns = ("paper", "valid windows", "windows", "held", "missed", "not compared", "seconds")
    yield Table(title="Quick studies of papers", columns=columns, rows=tuple(rows))


def _study(name: str) -> float:
    STORE.mkdir(parents=True, exist_ok=True)
    path = paperfile.find(str(ROOT / "playbooks/papers" / name))
    if paperfile.load(path, version=paperfile.QUICK).calibration is not None:
        call(orch_argv("calibrate", str(path.parent), "--quick", "--results", str(STORE)), within_s=1800.0)
    began = time.perf_counter()
    page = STORE / f"study-{name}-quick.html"
    call(
        orch_argv("study", str(path.parent), "--quick", "--wait", "5min", "--results", str(STORE), "-o", str(page)),
        ok=(0, INVALID),
        within_s=3600.0,
    )
    return time.perf_counter() - began


def _windows(name: str) -> tuple[int, int]:
    """Return how many windows of a study's sweeps are valid, and how many were measured."""
    study = paperfile.load(ROOT / "playbooks/papers" / name / paperfile.FILE, version=paperfile.QUICK)
    known = {definition.file.name for definition in study.sweeps}
    entries = [entry for entry in index.entries(Path(STORE)) if entry.sealed and _sweep_of(entry.path) in known]
    windows = list(itertools.chain.from_iterable(entry.manifest.windows for entry in entries))
    return sum(window.valid for window in windows), len(windows)


def _sweep_of(path: Path) -> str | None:
    found = json.loads((path / "manifest.json").read_bytes()).get("sweep") or {}
    name: str | None = found.get("name")
    return name
