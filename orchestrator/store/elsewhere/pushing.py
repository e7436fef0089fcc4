"""Push a store to a bucket: runs with their manifests last, compacted files, and the catalogue at the very end.

A reader goes by the catalogue, so that it never sees half of anything. What is there already is not sent again, and
whatever ends a push early, the next one goes on. Each store has a catalogue of its own there, so that several can be
pushed to one place. Runs that are gone here stay there, with their rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
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


def push(
    results: Path, url: str, *, captures: bool, verify: bool = False, tell: Callable[[str], None] = lambda _: None
) -> Pushed:
    """Send what is new in a compacted store; StoreError where the place cannot be written.

    A compacted file that was changed there is read, and sent again where it is damaged; to `verify` reads all that
    lies there.
    """
    bucket = Bucket.opened(url.rstrip("/"))
    with compacting.alone(results):
        here = catalogue.read(results)
        name = f"{FOLDER}/catalogue-{here.store}.json"
        there, problems = _catalogues(bucket, name)
        before = there.get(name, Catalogue(store=here.store))
        known = {run.folder: run.manifest for run in before.runs if not verify and run.folder not in before.lacking}
        new = [run for run in here.runs if known.get(run.folder) != run.manifest]
        how = _How(captures=captures, verify=verify, lacking=frozenset(before.lacking))
        sent = list(_runs(results, bucket, new, how, tell))
        unsent = {run.folder for run, one in zip(new, sent, strict=True) if not one.whole}
        lacking = {run.folder for run, one in zip(new, sent, strict=True) if one.whole and one.problems}
        files, count = _files(results, bucket, here, {} if verify else _seen(before), tell=tell)
        after = merged(_without(here, unsent, bucket.seen(FOLDER)), before)
        gone = set(before.lacking) - {run.folder for run in here.runs}
        bucket.write(name, coding.sealed(replace(after, lacking=tuple(sorted(lacking | gone)))))
        if not problems:  # else it is not known which files other stores have there
            others = {file for other, one in there.items() if other != name for file in one.names()}
            bucket.remove([f"{FOLDER}/{gone}" for gone in sorted(before.names() - after.names() - others)])
        return Pushed(
            runs=len(new) - len(unsent),
            files=files,
            bytes=count + sum(one.bytes for one in sent),
            problems=(*problems, *(problem for one in sent for problem in one.problems)),
        )


def _catalogues(bucket: Bucket, own: str) -> tuple[dict[str, Catalogue], list[str]]:
    """Return the catalogues that lie there, and what is wrong with those that are damaged.

    Of our own the runs are taken all the same, since some may be nowhere else: of each the manifest is verified anyway.
    """
    found, problems = {}, []
    for name in reading.names(bucket):
        try:
            found[name] = reading.read(bucket, name)
        except StoreError as error:
            problems.append(f"{error.message}{'; it is written anew' if name == own else ''}")
            with suppress(StoreError, ValueError, RecursionError):
                if name == own:
                    data = bucket.read(name, most=reading.MOST_CATALOGUE_BYTES)
                    found[name] = coding.learned(Catalogue).decode(data or b"")
    return found, problems


def _seen(before: Catalogue) -> dict[str, str]:
    return {file.name: file.seen for files in before.tables.values() for file in files if file.seen}


@dataclass(frozen=True, slots=True, kw_only=True)
class _How:
    """Whether captures are sent too, whether all that is there is read, and the runs of which something is missing."""

    captures: bool
    verify: bool
    lacking: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sent:
    whole: bool
    bytes: int = 0
    problems: tuple[str, ...] = ()


def _runs(
    results: Path, bucket: Bucket, runs: Sequence[Run], how: _How, tell: Callable[[str], None]
) -> Iterator[_Sent]:
    with ThreadPoolExecutor(SENDERS) as pool:
        for number, sent in enumerate(pool.map(lambda run: _run(results, bucket, run, how), runs), 1):
            yield sent
            tell(f"{number} of {len(runs)} runs")


def _run(results: Path, bucket: Bucket, run: Run, how: _How) -> _Sent:
    """Send a run, its manifest last; what the manifest that lies there has already is not sent again."""
    try:
        entry = retention.checked(rundir.opened(results / run.folder))
        if rundir.sha256(entry.path / MANIFEST) != run.manifest:
            return _Sent(whole=False, problems=(f"{run.folder}: changed meanwhile",))
    except OrchError as error:
        return _Sent(whole=False, problems=(f"{run.folder}: {error.message}",))
    there, count, problems = _artifacts(bucket, run, how), 0, []
    left = set() if how.captures else {one.path for one in retention.captures(entry)}
    for one in entry.manifest.artifacts:
        key = f"{run.folder}/{one.path}"
        if one.path in left or there.get(one.path) == one.sha256:
            continue
        path = safepath.regular(entry.path, one.path)
        if path is None or path.stat().st_size != one.bytes:
            problems.append(f"{key}: is gone, or not as large as its manifest says")
        elif rundir.sha256(path) != one.sha256:
            problems.append(f"{key}: is damaged: it is not what was sealed, and is not sent")
        else:
            bucket.send(path, key)
            count += one.bytes
    bucket.send(entry.path / MANIFEST, f"{run.folder}/{MANIFEST}")
    return _Sent(whole=True, bytes=count, problems=tuple(problems))


def _artifacts(bucket: Bucket, run: Run, how: _How) -> Mapping[str, str]:
    """Return the digest of each file that a run has there, by its manifest there; nothing where that cannot be read."""
    content = bucket.read(f"{run.folder}/{MANIFEST}", most=reading.MOST_MANIFEST_BYTES)
    try:
        found = coding.decoded(content, Manifest) if content else None
    except (ValueError, RecursionError):
        found = None
    there = found.artifacts if found else ()
    if how.verify:
        return {one.path: bucket.sha256(f"{run.folder}/{one.path}", one.bytes) or "" for one in there}
    if run.folder in how.lacking:
        sizes = bucket.sizes(run.folder)
        there = tuple(one for one in there if sizes.get(f"{run.folder}/{one.path}") == one.bytes)
    return {one.path: one.sha256 for one in there}


def _files(
    results: Path, bucket: Bucket, here: Catalogue, seen: Mapping[str, str], *, tell: Callable[[str], None]
) -> tuple[int, int]:
    """Send the compacted files that are not there, or damaged; how many, and their bytes.

    One of which the file system says what it said before (`seen`) is as it was; any other one is read.
    """
    sizes, now = bucket.sizes(FOLDER), bucket.seen(FOLDER)

    def is_there(file: File) -> bool:
        key = f"{FOLDER}/{file.name}"
        if sizes.get(key) != file.bytes:
            return False
        if file.name in seen and seen[file.name] == now[key]:
            return True
        return (bucket.sha256(key, file.bytes) or "").startswith(file.digest)

    files = [file for of_table in here.tables.values() for file in of_table]
    with ThreadPoolExecutor(SENDERS) as pool:
        new = [file for file, there in zip(files, pool.map(is_there, files), strict=True) if not there]
    for file in new:
        path = safepath.regular(results / FOLDER, file.name)
        if path is None or not rundir.sha256(path).startswith(file.digest):
            raise StoreError(f"{results / FOLDER / file.name}: is damaged", hint=catalogue.MEND)
    with ThreadPoolExecutor(SENDERS) as pool:
        sent = pool.map(lambda file: bucket.send(results / FOLDER / file.name, f"{FOLDER}/{file.name}"), new)
        for number, _ in enumerate(sent, 1):
            tell(f"{number} of {len(new)} compacted files")
    return len(new), sum(file.bytes for file in new)


def _without(here: Catalogue, unsent: set[str], seen: Mapping[str, str]) -> Catalogue:
    """Return a catalogue as it lies in a bucket: without stamps, and without runs that are not there.

    `seen` is what the bucket's file system says of each file.
    """
    kept = [run for run in here.runs if run.folder not in unsent]
    places = {run.folder: place for place, run in enumerate(kept)}
    tables = {
        table: tuple(replace(_placed(file, here, places), seen=seen.get(f"{FOLDER}/{file.name}", "")) for file in files)
        for table, files in here.tables.items()
    }
    return replace(here, runs=tuple(kept), tables=tables, made_ns=time.time_ns())


def _placed(file: File, of: Catalogue, places: Mapping[str, int]) -> File:
    """Return a file with those of its runs that have a place, and without stamps."""
    runs = tuple(places[of.runs[run].folder] for run in file.runs if of.runs[run].folder in places)
    others = file.others or len(runs) < len(file.runs)
    return replace(file, runs=runs, others=others, stamps=coding.raw([]), made_of="")


def merged(here: Catalogue, before: Catalogue) -> Catalogue:
    """Return what is here, and those runs of the bucket that are gone here, with the files that have their rows."""
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
