"""How long the quick study of each paper takes, how many of its windows are valid, and what its page says.

Studies are measured one by one into `results/bench-papers`, calibration first; a later call goes on from there and
does not repeat what is measured. Pages stand beside the results. The time of a study is that of its runs, those that
were not valid too: it so holds of one that was interrupted.
"""

from __future__ import annotations

import itertools
import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from orchestrator.analysis.compare import selection
from orchestrator.experiment import paperfile
from orchestrator.papers import page, reading
from orchestrator.papers.verdicts import HELD, MISSED, VERDICTS, Line
from orchestrator.store import index
from tests.bench.commands import INVALID, ROOT, call, orch_argv
from tests.bench.figure import Figure, Settings, Table

STORE = ROOT / "results" / "bench-papers"
PAPERS = ("farhat", "hashemi", "li", "salamy", "zerwas", "cassini", "open")
GOAL_S = 600.0
_JUDGED = ("what", "ours", "printed", "verdict", "place")


def measure(settings: Settings) -> Iterator[Figure | Table]:
    """Return seconds of each quick study, its windows and its judged lines; `--quick` measures one alone."""
    rows, judged = [], []
    for name in PAPERS[: settings.times(len(PAPERS), 1)]:
        _study(name)
        lines = _lines(name)
        valid, windows, seconds = _windows(name)
        counts = Counter(line.verdict for line in lines)
        rows.append((name, valid, windows, *(counts[verdict] for verdict in VERDICTS), round(seconds)))
        told = [
            (one.what, one.ours, one.printed, one.verdict, one.place) for one in lines if one.verdict in (HELD, MISSED)
        ]
        judged.append(Table(title=f"{name}: what is compared", columns=_JUDGED, rows=tuple(told)))
        yield Figure(
            what=f"{name}: quick study",
            unit="s",
            values=(seconds,),
            against="goal",
            reference=(GOAL_S,),
            note=f"{valid} of {windows} windows valid",
            tabled=True,
        )
    columns = ("paper", "valid windows", "windows", *VERDICTS, "seconds")
    yield Table(title="Windows, verdicts and time", columns=columns, rows=tuple(rows))
    yield from judged


def _study(name: str) -> None:
    """Measure what is missing of a study, and write its page."""
    STORE.mkdir(parents=True, exist_ok=True)
    path = paperfile.find(str(ROOT / "playbooks/papers" / name))
    if paperfile.load(path, version=paperfile.QUICK).calibration is not None:
        call(orch_argv("calibrate", str(path.parent), "--quick", "--results", str(STORE)), within_s=1800.0)
    where = ("--results", str(STORE), "-o", str(STORE / f"study-{name}-quick.html"))
    call(orch_argv("study", str(path.parent), "--quick", "--wait", "5min", *where), ok=(0, INVALID), within_s=3600.0)


def _lines(name: str) -> tuple[Line, ...]:
    """Return the lines of a study's page."""
    path = paperfile.find(str(ROOT / "playbooks/papers" / name))
    sweeps = (one.file.name for one in paperfile.load(path, version=paperfile.QUICK).sweeps)
    entries = selection.choose(STORE, ",".join(sweeps)).entries
    with tempfile.TemporaryDirectory() as scratch:
        return page.render(reading.paper(path), entries, Path(scratch) / "page.html").lines


def _windows(name: str) -> tuple[int, int, float]:
    """Return how many windows of a study's sweeps are valid, how many were measured, and seconds of their runs."""
    study = paperfile.load(ROOT / "playbooks/papers" / name / paperfile.FILE, version=paperfile.QUICK)
    known = {definition.file.name for definition in study.sweeps}
    manifests = [one.manifest for one in index.entries(Path(STORE)) if one.sealed and _sweep_of(one.path) in known]
    windows = list(itertools.chain.from_iterable(manifest.windows for manifest in manifests))
    seconds = sum(manifest.phases["total"] for manifest in manifests)
    return sum(window.valid for window in windows), len(windows), seconds


def _sweep_of(path: Path) -> str | None:
    found = json.loads((path / "manifest.json").read_bytes()).get("sweep") or {}
    name: str | None = found.get("name")
    return name
