"""Pages that already lie in a store: reports of runs, verdicts on sweeps, studies."""

from __future__ import annotations

import contextlib
import html
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import TypedDict
from urllib.parse import quote

from orchestrator.core.errors import UnsafePath
from orchestrator.core.paths import safepath
from orchestrator.report.page import REPORT, report_name
from orchestrator.store.manifests import coding
from orchestrator.store.rundir import Listed

_OF_SEVERAL = re.compile(r"-and-\d+-more\.html$")
VERDICTS = ("worse", "better", "same", "cannot tell")
_HEAD_BYTES = 65536  # of a page: what its head says lies in these
_MOST_BYTES = 64 << 20  # of a verdict: more is none of ours
_ABOUT = re.compile(rb'<meta name="orch-(runs|verdict)" content="([^"]*)">')


class Reports:
    """The reports beside the runs of a store; of runs that repeat each other one report is about all."""

    def __init__(self, results: Path) -> None:
        self._results = results
        self._names: dict[Path, Sequence[str]] = {}
        self._runs = lru_cache(maxsize=None)(_runs_of)

    def of(self, entry: Listed) -> str:
        """The address of a run's report, from the store's folder; empty where there is none."""
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
    """What a page of ours says of itself in its head."""
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
    """Each point of a sweep and what it was called against the sweep's baseline; empty where it was not judged."""
    path = sweep / "verdict.json"
    try:
        if path.stat().st_size > _MOST_BYTES:
            return []
        found = coding.decoded(safepath.content(path) or b"", _Verdict)
    except (OSError, UnsafePath, ValueError, RecursionError):
        return []
    return [(one.point, one.verdict) for one in found.points if one.verdict in VERDICTS]


class StudyPage(TypedDict):
    """A study's page: where it lies from the store, when it was made, and its verdict."""

    name: str
    page: str
    made: int
    verdict: str


def studies(results: Path) -> list[StudyPage]:
    """The pages of studies in the store and beside it, where `orch study` puts them, newest first."""
    found: list[StudyPage] = []
    for folder, way in ((results, ""), (results.resolve().parent, "../")):
        for page in folder.glob("study-*.html"):
            with contextlib.suppress(OSError):
                found.append(
                    {
                        "name": page.stem.removeprefix("study-"),
                        "page": f"{way}{quote(page.name)}",
                        "made": int(page.stat().st_mtime),
                        "verdict": _about(page).get("verdict", ""),
                    }
                )
    return sorted(found, key=lambda one: one["made"], reverse=True)
