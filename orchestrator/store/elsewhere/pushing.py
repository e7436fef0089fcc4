"""Pushes a store to a bucket: runs with their manifests last, compacted files, and the catalogue at the very end.

A reader goes by the catalogue, so that it never sees half of anything. What is there already is not sent again, and
whatever ends a push early, the next one goes on. Each store has a catalogue of its own there, so that several can be
pushed to one place. Runs that are gone here stay there, with their rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.core.errors import OrchError, StoreError
from orchestrator.core.paths import safepath
from orchestrator.store import retention, rundir
from orchestrator.store.compact import catalogue, compacting
from orchestrator.store.compact.catalogue import FOLDER, Catalogue, File, Run
from orchestrator.store.elsewhere import reading
from orchestrator.store.elsewhere.buckets import Bucket
from orchestrator.store.manifests import coding
from orchestrator.store.manifests.records import Manifest
from orchestrator.store.stamps import MANIFEST

SENDERS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """What a push sent: runs, compacted files, bytes of both, and what is wrong with runs that were not."""

    runs: int
    files: int
    bytes: int
    problems: tuple[str, ...]


def push(results: Path, url: str, *, captures: bool, tell: Callable[[str], None] = lambda _: None) -> Pushed:
    """Send what is new in a compacted store; StoreError where the place cannot be written."""
    bucket = Bucket.opened(url.rstrip("/"))
    with compacting.alone(results):
        here = catalogue.read(results)
        name = f"{FOLDER}/catalogue-{here.store}.json"
        there = reading.catalogues(bucket)
        before = there.get(name, Catalogue(store=here.store))
        known = {run.folder: run.manifest for run in before.runs}
        new = [run for run in here.runs if known.get(run.folder) != run.manifest]
        sent = list(_runs(results, bucket, new, captures=captures, tell=tell))
        problems = [problem for one in sent for problem in one.problems]
        unsent = {run.folder for run, one in zip(new, sent, strict=True) if not one.whole}
        files, count = _files(results, bucket, here, tell=tell)
        after = merged(_without(here, unsent), before)
        bucket.write(name, coding.encoded(after))
        others = {file for other, one in there.items() if other != name for file in one.names()}
        bucket.remove([f"{FOLDER}/{gone}" for gone in sorted(before.names() - after.names() - others)])
        return Pushed(
            runs=len(new) - len(unsent), files=files, bytes=count + sum(one.bytes for one in sent),
            problems=tuple(problems),
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sent:
    whole: bool
    bytes: int = 0
    problems: tuple[str, ...] = ()


def _runs(
    results: Path, bucket: Bucket, runs: Sequence[Run], *, captures: bool, tell: Callable[[str], None]
) -> Iterator[_Sent]:
    with ThreadPoolExecutor(SENDERS) as pool:
        for number, sent in enumerate(pool.map(lambda run: _run(results, bucket, run, captures=captures), runs), 1):
            yield sent
            tell(f"{number} of {len(runs)} runs")


def _run(results: Path, bucket: Bucket, run: Run, *, captures: bool) -> _Sent:
    """Send a run, its manifest last; what the manifest that lies there has already is not sent again."""
    try:
        entry = retention.checked(rundir.opened(results / run.folder))
        if rundir.sha256(entry.path / MANIFEST) != run.manifest:
            return _Sent(whole=False, problems=(f"{run.folder}: changed meanwhile",))
    except OrchError as error:
        return _Sent(whole=False, problems=(f"{run.folder}: {error.message}",))
    there, count, problems = _artifacts(bucket, run.folder), 0, []
    left = set() if captures else {one.path for one in retention.captures(entry)}
    for one in entry.manifest.artifacts:
        if one.path in left or there.get(one.path) == one.sha256:
            continue
        path = safepath.regular(entry.path, one.path)
        if path is None or path.stat().st_size != one.bytes:
            problems.append(f"{run.folder}/{one.path}: is gone, or not as large as its manifest says")
            continue
        bucket.send(path, f"{run.folder}/{one.path}")
        count += one.bytes
    bucket.send(entry.path / MANIFEST, f"{run.folder}/{MANIFEST}")
    return _Sent(whole=True, bytes=count, problems=tuple(problems))


def _artifacts(bucket: Bucket, folder: str) -> Mapping[str, str]:
    """The digest of each file that a run's manifest there has; nothing where there is none that can be read."""
    content = bucket.read(f"{folder}/{MANIFEST}", most=reading.MOST_MANIFEST_BYTES)
    try:
        found = coding.decoded(content, Manifest) if content else None
    except (ValueError, RecursionError):
        found = None
    return {one.path: one.sha256 for one in found.artifacts} if found else {}


def _files(results: Path, bucket: Bucket, here: Catalogue, *, tell: Callable[[str], None]) -> tuple[int, int]:
    """Send the compacted files that are not there; how many, and their bytes."""
    there = bucket.sizes(FOLDER)
    files = [file for of_table in here.tables.values() for file in of_table]
    new = [file for file in files if there.get(f"{FOLDER}/{file.name}") != file.bytes]
    for file in new:
        if not catalogue.intact(results, file):
            raise StoreError(f"{results / FOLDER / file.name}: is damaged", hint="orch store compact")
    with ThreadPoolExecutor(SENDERS) as pool:
        sent = pool.map(lambda file: bucket.send(results / FOLDER / file.name, f"{FOLDER}/{file.name}"), new)
        for number, _ in enumerate(sent, 1):
            tell(f"{number} of {len(new)} compacted files")
    return len(new), sum(file.bytes for file in new)


def _without(here: Catalogue, unsent: set[str]) -> Catalogue:
    """A catalogue as it lies in a bucket: without stamps, and without runs that are not there."""
    kept = [run for run in here.runs if run.folder not in unsent]
    places = {run.folder: place for place, run in enumerate(kept)}
    tables = {table: tuple(_placed(file, here, places) for file in files) for table, files in here.tables.items()}
    return replace(here, runs=tuple(kept), tables=tables, made_ns=time.time_ns())


def _placed(file: File, of: Catalogue, places: Mapping[str, int]) -> File:
    """A file with those of its runs that have a place, and without stamps."""
    runs = tuple(places[of.runs[run].folder] for run in file.runs if of.runs[run].folder in places)
    others = file.others or len(runs) < len(file.runs)
    return File(name=file.name, bytes=file.bytes, rows=file.rows, runs=runs, others=others, stamps=coding.raw([]))


def merged(here: Catalogue, before: Catalogue) -> Catalogue:
    """What is here, and of what was there before the runs that are gone here, with the files that have their rows."""
    mine = {run.folder for run in here.runs}
    gone = [run for run in before.runs if run.folder not in mine]
    places = {run.folder: len(here.runs) + number for number, run in enumerate(gone)}
    tables = dict(here.tables)
    for table, files in before.tables.items():
        kept = [_placed(file, before, places) for file in files]
        names = {file.name: file for file in tables.get(table, ())}
        for file in kept:
            if file.runs and file.name in names:
                runs = (*names[file.name].runs, *file.runs)
                names[file.name] = replace(names[file.name], runs=runs)
            elif file.runs:
                names[file.name] = file
        tables[table] = tuple(names.values())
    return replace(here, runs=(*here.runs, *gone), tables=tables)
