"""Write a store's front page `index.html`: markup, style, script and the store's data in one file.

The page asks nothing of a network and carries out nothing but its own script: its content security policy names that
script and its style by their hashes. What runs say is data (gzipped, in base64), never markup.

Of the data, rates are bit/s at full size, times seconds, instants seconds since the epoch. A run is a list of values in
the order of RUN, its windows and their jobs likewise: ten thousand of them are sent.
"""

from __future__ import annotations

import contextlib
import html
import math
import os
import re
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import Any, TypedDict
from urllib.parse import quote

from orchestrator.analysis.compare import point_histories, selection, window_settings
from orchestrator.analysis.compare.point_histories import InBrief
from orchestrator.core.errors import StoreError, UnsafePath
from orchestrator.core.paths import safepath
from orchestrator.core.units import quantity
from orchestrator.report import page
from orchestrator.report.page import REPORT, digest, pack, report_name
from orchestrator.store import atomic, baselines, index, sweeps
from orchestrator.store.attempts import attempts
from orchestrator.store.manifests import coding
from orchestrator.store.manifests.summaries import Job, Summary, Training, WindowSummary
from orchestrator.store.rundir import Listed
from orchestrator.store.sweeps import Sweep

FILE = "index.html"
_HERE = Path(__file__).parent
_SCRIPTS = ("data", "dom", "chart", "runs", "run", "compare", "history", "sweeps", "main")  # in this order

RUN = (
    "id",
    "name",
    "verdict",
    "against",
    "began",
    "seconds",
    "scale",
    "commit",
    "sweep",
    "jobs",
    "asked",
    "why",
    "folder",
    "report",
    "windows",
)
WINDOW = ("label", "name", "valid", "why", "requested", "achieved", "jobs")
JOB = ("job", "iterations", "mean", "p50", "low", "high", "p99")
DIGITS = 5
MOST_REASONS = 4  # of a run; `orch show` has all

_OF_SEVERAL = re.compile(r"-and-\d+-more\.html$")
VERDICTS = ("worse", "better", "same", "cannot tell")
_HEAD_BYTES = 65536  # of a page: what its head says lies in these
_MOST_BYTES = 64 << 20  # of a verdict: more is none of ours
_ABOUT = re.compile(rb'<meta name="orch-(runs|verdict)" content="([^"]*)">')


def write(results: Path) -> Path:
    """Write the page of a store, whole or not at all; StoreError where that cannot be done."""
    if not results.is_dir():
        raise StoreError(f"{results}: no such folder", hint="--results DIR names a results folder")
    output = results / FILE
    try:
        atomic.write(output, text(data_of_store(results)).encode())
    except OSError as error:
        raise StoreError(f"cannot write the page {output}: {error.strerror}") from error
    return output


def text(data: StoreData) -> str:
    """Return the HTML of the page for the result of `data_of_store`."""
    script, style = _script(), page.fill("site/page.css")
    policy = (
        f"default-src 'none'; script-src '{digest(script)}'; style-src '{digest(style)}'; base-uri 'none'; "
        "form-action 'none'"
    )
    return page.fill("site/index.html", store=data["store"], policy=policy, style=style, script=script, data=pack(data))


def _script() -> str:
    parts = [(_HERE / "script" / f"{name}.js").read_text(encoding="utf-8") for name in _SCRIPTS]
    return "\n".join(["(async () => {", '"use strict";', page.script_named("unpack"), *parts, "})();"])


class Fields(TypedDict):
    """Names of the values of a run, of a window and of a job, in their order."""

    run: Sequence[str]
    window: Sequence[str]
    job: Sequence[str]


class SweepBrief(TypedDict):
    """A sweep: its progress, and the verdicts of its last comparison, by verdict of points."""

    id: str
    name: str
    began: int
    mode: str
    points: int
    repetitions: int
    planned: int
    missing: int
    runs: int
    verdict: Mapping[str, int]
    page: str


class BaselineBrief(TypedDict):
    """A baseline: when it was set, and the runs that it is made of."""

    name: str
    set: int
    of: list[str]
    runs: list[str]


class PointBrief(TypedDict):
    """A point of a history: medians, the change that would be found, and steps (night, before, after, p, statistic)."""

    label: str
    p50: list[float | None]
    findable: float | None
    steps: list[list[float | str | None]]


class HistoryBrief(TypedDict):
    """The nights of an experiment, and its points over them."""

    name: str
    days: list[str]
    folders: list[list[str]]
    points: list[PointBrief]


class StoreData(TypedDict):
    """The data of the page."""

    store: str
    made: int
    fields: Fields
    runs: list[list[Any]]
    sweeps: list[SweepBrief]
    studies: list[StudyPage]
    baselines: list[BaselineBrief]
    histories: list[HistoryBrief]
    problems: list[str]


def data_of_store(results: Path) -> StoreData:
    """Return the data that the page shows of a store; what cannot be read is among its `problems`."""
    listed = index.listing(results)
    problems = list(listed.problems)
    runs = sorted(listed.entries, key=lambda entry: (entry.manifest.began_ns, entry.run), reverse=True)
    reports = Reports(results)
    carried_out = sweeps.sweeps(results)
    judged = {sweep.id: dict(verdicts_of(sweep.path)) for sweep in carried_out}
    bad = [one for one in attempts([entry.manifest for entry in runs]) if not one.valid]
    repeated = {one.run for one in bad} - {one.run for one in bad if not one.again}
    return {
        "store": results.resolve().name,
        "made": int(time.time()),
        "fields": {"run": RUN, "window": WINDOW, "job": JOB},
        "runs": [_run(entry, reports, verdict(entry, repeated), _against(entry, judged)) for entry in runs],
        "sweeps": _sweeps(results, carried_out, listed.entries),
        "studies": studies(results),
        "baselines": _baselines(results, problems),
        "histories": [_history(name, found) for name, found in point_histories.in_brief(listed.entries).items()],
        "problems": problems,
    }


# Runs


def _run(entry: Listed, reports: Reports, counts: str, against: str) -> list[Any]:
    manifest = entry.manifest
    return [
        entry.run,
        entry.path.parent.name,
        counts,
        against,
        manifest.began_ns // 10**9,
        None if manifest.ended_ns is None else (manifest.ended_ns - manifest.began_ns) // 10**9,
        manifest.scale,
        _commit(manifest),
        manifest.sweep.id if manifest.sweep else "",
        "; ".join(map(_job_text, manifest.jobs)),
        None if manifest.windows else _asked(entry),
        _reasons(manifest),
        f"{quote(entry.path.parent.name)}/{quote(entry.path.name)}/",
        reports.of(entry),
        [_window(entry, window) for window in manifest.windows],
    ]


def verdict(entry: Listed, repeated: Collection[str]) -> str:
    """Return `valid` or `invalid` for a run that was completed, else its outcome.

    `repeated` are runs whose every window that is not valid was measured again with success: that is their verdict.
    """
    if entry.outcome != "completed":
        return entry.outcome
    if entry.manifest.valid:
        return "valid"
    return "repeated" if entry.run in repeated else "invalid"


def _against(entry: Listed, judged: Mapping[str, Mapping[str, str]]) -> str:
    """Return the gravest verdict against the baseline of its sweep on a point of the run; empty without any."""
    of_sweep = judged.get(entry.manifest.sweep.id, {}) if entry.manifest.sweep else {}
    found = {of_sweep.get(point.point) for point in entry.manifest.points.values()}
    return next((one for one in VERDICTS if one in found), "")


def _asked(entry: Listed) -> float | None:
    """Return the cross traffic (bit/s, full size) requested of a run that ended before a window; None if unknown."""
    try:
        windows = window_settings.set_to(entry).values()
        return number(max((math.fsum(map(_load, window["traffic"])) for window in windows), default=0.0))
    except (StoreError, AttributeError, TypeError, ValueError, KeyError):  # a file that others wrote
        return None


def _load(source: Mapping[str, Any]) -> float:
    """Return the load that a source of traffic is set to; NaN where the file has none."""
    (config,) = source.values()
    found = quantity(str(config["load"]))
    return math.nan if found is None else found[1]


def _commit(manifest: Summary) -> str:
    git = manifest.git
    if git is None or not git.commit:
        return ""
    return git.commit[:12] + ("+" if git.dirty else "")


def _job_text(job: Job) -> str:
    what = " ".join(filter(None, (job.workload, job.model)))
    return ", ".join(filter(None, (what, f"{len(job.ranks)} ranks" if job.ranks else "", job.compute)))


def _reasons(manifest: Summary) -> list[str]:
    found = list(manifest.reasons)
    if manifest.error:
        found.insert(0, f"at stage {manifest.stage or '?'}: {manifest.error}")
    more = len(found) - MOST_REASONS
    return [*found[:MOST_REASONS], f"and {more} more"] if more > 0 else found


def _window(entry: Listed, window: WindowSummary) -> list[Any]:
    place = selection.point_of_window(entry, window.name)
    scale, achieved = entry.manifest.scale, window.achieved_bps
    return [
        f"{window.name}, measured once more in a run of its own" if place is None else place.label,
        window.name,
        int(window.valid),
        list(window.reasons[:MOST_REASONS]),
        number(window.requested_bps * scale),
        None if achieved is None else number(achieved * scale),
        [_job(row) for row in window.training],
    ]


def _job(row: Training) -> list[Any]:
    return [row.job, row.iterations, *map(number, (row.mean_s, row.p50_s, row.p50_low_s, row.p50_high_s, row.p99_s))]


def number(value: float | None) -> float | None:
    """Return a number to DIGITS digits; None for one that is not known."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.{DIGITS}g}")


# Sweeps, baselines, histories


def _sweeps(results: Path, found: Sequence[Sweep], entries: Iterable[Listed]) -> list[SweepBrief]:
    """Return the sweeps, newest first."""
    runs: dict[str, list[Listed]] = defaultdict(list)
    for entry in entries:
        if entry.manifest.sweep:
            runs[entry.manifest.sweep.id].append(entry)
    return [_sweep(results, sweep, runs[sweep.id]) for sweep in reversed(found)]


def _sweep(results: Path, sweep: Sweep, runs: Sequence[Listed]) -> SweepBrief:
    measured = [one for entry in runs if entry.sealed for one in sweeps.windows_of(entry.path, entry.manifest)]
    planned = [key for key in sweep.planned() if not key[2]]
    judged = Counter(called for _, called in verdicts_of(sweep.path))
    pages = (sweep.path / name for name in ("verdict.html", "choices.html"))
    page = next((one for one in pages if one.is_file()), None)
    return {
        "id": sweep.id,
        "name": sweep.name,
        "began": sweep.plan.began_ns // 10**9,
        "mode": sweep.plan.mode,
        "points": len(sweep.plan.points),
        "repetitions": sweep.plan.repetitions,
        "planned": len(planned),
        "missing": len(sweeps.missing(sweep, measured)),
        "runs": len(runs),
        "verdict": {name: count for name in VERDICTS if (count := judged[name])},
        "page": quote(str(page.relative_to(results))) if page is not None else "",
    }


def _baselines(results: Path, problems: list[str]) -> list[BaselineBrief]:
    try:
        found = baselines.every(results)
    except StoreError as error:
        problems.append(error.message)
        return []
    return [{"name": one.name, "set": one.set_ns // 10**9, "of": list(one.of), "runs": list(one.runs)} for one in found]


def _history(name: str, found: InBrief) -> HistoryBrief:
    return {
        "name": name,
        "days": [point_histories.day_text(night.began_ns) for night in found.nights],
        "folders": [list(night.folders) for night in found.nights],
        "points": [
            {
                "label": point.label,
                "p50": list(map(number, point.p50_s)),
                "findable": number(point.findable),
                "steps": [
                    [step.night, number(step.before_s), number(step.after_s), number(step.p), step.statistic]
                    for step in point.steps
                ],
            }
            for point in found.points
        ],
    }


class Reports:
    """The reports beside the runs of a store; of runs that repeat each other one report is about all."""

    def __init__(self, results: Path) -> None:
        self._results = results
        self._names: dict[Path, Sequence[str]] = {}
        self._runs = lru_cache(maxsize=None)(_runs_of)

    def of(self, entry: Listed) -> str:
        """Return the address of a run's report, from the store's folder; empty where there is none."""
        folder = entry.path.parent
        if folder not in self._names:
            self._names[folder] = _report_names(folder)
        names, own = self._names[folder], report_name(entry.run)
        if own in names:
            return f"{quote(folder.name)}/{quote(own)}"
        # A report is called by its first run, and runs sort by time: that of several is the last one before its others.
        several = [name for name in takewhile(lambda name: name < own, names) if _OF_SEVERAL.search(name)]
        if several and entry.run in self._runs(folder / several[-1]):
            return f"{quote(folder.name)}/{quote(several[-1])}"
        return ""


def _report_names(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as found:
            return sorted(one.name for one in found if one.name.startswith(REPORT) and one.name.endswith(".html"))
    except OSError:
        return []


def _runs_of(page: Path) -> frozenset[str]:
    return frozenset(_about(page).get("runs", "").split("/"))


def _about(page: Path) -> dict[str, str]:
    """Read the metadata in the head of a page made by orch; empty for any other."""
    try:
        with safepath.opened(page) as file:
            head = file.read(_HEAD_BYTES)
    except (OSError, UnsafePath):
        return {}
    return {name.decode(): html.unescape(text.decode(errors="replace")) for name, text in _ABOUT.findall(head)}


@dataclass(frozen=True, slots=True)
class _Point:
    verdict: str
    point: str = ""


@dataclass(frozen=True, slots=True)
class _Verdict:
    points: tuple[_Point, ...] = field(default=())


def verdicts_of(sweep: Path) -> list[tuple[str, str]]:
    """Return the verdict on each point of a sweep against the sweep's baseline.

    Empty where it was not judged.
    """
    path = sweep / "verdict.json"
    try:
        if path.stat().st_size > _MOST_BYTES:
            return []
        found = coding.decoded(safepath.content(path) or b"", _Verdict)
    except (OSError, UnsafePath, ValueError, RecursionError):
        return []
    return [(one.point, one.verdict) for one in found.points if one.verdict in VERDICTS]


class StudyPage(TypedDict):
    """A study's page: its path from the store, when it was made, and its verdict."""

    name: str
    page: str
    made: int
    verdict: str


def studies(results: Path) -> list[StudyPage]:
    """Return the pages of studies in the store and beside it, where `orch study` puts them, newest first."""
    found: list[StudyPage] = []
    for folder, way in ((results, ""), (results.resolve().parent, "../")):
        for path in folder.glob("study-*.html"):
            with contextlib.suppress(OSError):
                found.append(
                    {
                        "name": path.stem.removeprefix("study-"),
                        "page": f"{way}{quote(path.name)}",
                        "made": int(path.stat().st_mtime),
                        "verdict": _about(path).get("verdict", ""),
                    }
                )
    return sorted(found, key=lambda one: one["made"], reverse=True)
