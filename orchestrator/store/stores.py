"""Open a store of runs for reading: a results folder on this machine, or one behind a URL."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from orchestrator.core.errors import ConfigError, StoreError
from orchestrator.core.paths import safepath
from orchestrator.core.screen import console
from orchestrator.store.picked import Picked, folder_of, of_entries
from orchestrator.store.stamps import MANIFEST, Stamp, manifest_stamps, stamp_of

if TYPE_CHECKING:
    import duckdb

    from orchestrator.store.compact.catalogue import Catalogue, Sources
    from orchestrator.store.index import Listing
    from orchestrator.store.listing import Filter
    from orchestrator.store.rundir import Entry, Listed

T = TypeVar("T")

LAST = "last"  # the run that began last

_FEW = 64  # manifests that are quicker read than the index of all


class Store(Protocol):
    """The interface of a store for reading."""

    @property
    def root(self) -> str:
        """The path or URL of the store's run folders."""

    def listing(self) -> Listing:
        """Return every run in brief, in order of path, and what is wrong with those that cannot be read."""

    def every(self) -> Picked:
        """Return all runs."""

    def find(self, wanted: str) -> Entry:
        """Return the run with this id, a unique beginning or end of it, or `last`; StoreError where there is none."""

    def sources(self, table: str, folders: Sequence[str]) -> Sources:
        """Return where the rows of a table (of files or of manifests) of these sealed runs lie."""

    def connected(self) -> duckdb.DuckDBPyConnection:
        """Return a new connection of DuckDB's that can read what `sources` gives."""

    def renewed(self) -> Store | None:
        """Return the store as it is now; None where it was not compacted since this one was opened."""

    def brought(self, entry: Listed, *, want: Callable[[str], bool] | None = None) -> Path:
        """Return the folder of a run on this machine, in which there are its tables and the facts of its hosts.

        `want` decides by the path in the run's folder instead.
        """


def is_elsewhere(results: str) -> bool:
    """Return whether a store is named by a URL."""
    return "://" in results


def opened(results: str) -> Store:
    """Return the store that a folder or a URL names."""
    if is_elsewhere(results):
        from orchestrator.store.elsewhere.reading import Elsewhere

        return Elsewhere.opened(results)

    return Here(Path(safepath.utf8(results)))


def answered(store: Store, ask: Callable[[Store], T]) -> T:
    """Return what `ask` gives of the store; it is asked again where compacting replaced files meanwhile."""
    try:
        return ask(store)
    except (StoreError, ConfigError):
        newer = store.renewed()
        if newer is None:
            raise
    return answered(newer, ask)


def picked(store: Store, runs: Sequence[str], wanted: Filter) -> Picked:
    """Return all runs of a store, or those that `named` gives, as far as a filter lets them through."""
    from orchestrator.store import listing

    if not runs and wanted == listing.Filter():
        return store.every()
    return of_entries(listing.select(named(store, runs), wanted))


def named(store: Store, runs: Iterable[str]) -> list[Listed]:
    """Return all runs of a store, or those that are named: by id, part of one, `last`, or as `group` has it."""
    found = store.listing().entries
    if not runs:
        return found
    chosen: list[Listed] = []
    for wanted in runs:
        together = group(store, wanted)
        if together is not None:
            chosen += together
            continue
        hits = [entry for entry in found if _is_meant(entry, wanted)]
        hits = [max(found, key=lambda entry: entry.run)] if wanted == LAST and found else hits
        if not hits:
            raise StoreError(f"{wanted}: no such run in {store.root}", hint="orch ls")
        chosen += hits
    return chosen


def entries(store: Store, runs: Iterable[str]) -> list[Entry]:
    """Return the runs that are named by id, part of one, folder, `last`, or as `group` has it, each once."""
    found: dict[str, Entry] = {}
    for wanted in runs:
        together = group(store, wanted)
        whole = [store.find(wanted)] if together is None else [store.find(entry.run) for entry in together]
        found |= {entry.run: entry for entry in whole}
    return list(found.values())


def one(store: Store, wanted: str) -> Entry:
    """Return the one run that a name stands for; StoreError where it stands for several."""
    found = entries(store, [wanted])
    if len(found) > 1:
        raise StoreError(
            f"{wanted}: {len(found)} runs; accepted: one of them, such as {found[-1].run}",
            hint=f"orch ls --experiment {found[-1].path.parent.name}",
        )
    return found[0]


def group(store: Store, wanted: str) -> list[Listed] | None:
    """Return the sealed runs that a name stands for which is no run's; None where it is no such name.

    That is a baseline, the id of a sweep, NAME@DATE, or NAME: of a sweep (its newest instance) or of an experiment (its
    runs of the newest day). DATE is a day in UTC, YYYY-MM-DD or "today"; StoreError where there is no run of it.
    """
    if wanted == LAST or "/" in wanted:
        return None
    if not is_elsewhere(store.root):
        from orchestrator.store import baselines

        if baselines.exists(Path(store.root), wanted):
            return list(baselines.entries(Path(store.root), wanted))
    name, at, day = wanted.rpartition("@")
    if at and name:
        return _of_day(store, name, day)
    if found := of_name(store, wanted):
        return _newest(found)
    return [entry for entry in store.listing().entries if entry.sealed and _sweep_id(entry) == wanted] or None


def of_name(store: Store, name: str) -> list[Listed]:
    """Return the sealed runs in the folder of a sweep or an experiment."""
    return [entry for entry in store.listing().entries if entry.sealed and entry.path.parent.name == name]


def _of_day(store: Store, name: str, day: str) -> list[Listed]:
    try:
        wanted = datetime.now(tz=timezone.utc).date() if day == "today" else date.fromisoformat(day)
    except ValueError:
        raise ConfigError(
            f"{name}@{day}: not a day; accepted: YYYY-MM-DD (UTC), such as 2026-11-20, or today"
        ) from None
    named_so = of_name(store, name)
    found = [entry for entry in named_so if day_of(entry) == wanted.isoformat()]
    if not found:
        days = sorted({day_of(entry) for entry in named_so})
        known = f"it has {', '.join(days[-5:])}" if days else f"there is no sweep or experiment {name!r}"
        raise StoreError(f"{name}@{day}: no run in {store.root}; {known}", hint="orch ls")
    return _newest(found)


def _newest(found: Sequence[Listed]) -> list[Listed]:
    """Return the runs of the newest instance."""
    newest = instance(max(found, key=lambda entry: entry.run))
    return [entry for entry in found if instance(entry) == newest]


def _sweep_id(entry: Listed) -> str:
    """Return the id of the sweep that a run is of; empty for one of none."""
    return entry.manifest.sweep.id if entry.manifest.sweep else ""


def instance(entry: Listed) -> str:
    """Return what identifies runs that belong together: the sweep instance, else the day."""
    return _sweep_id(entry) or day_of(entry)


def day_of(entry: Listed) -> str:
    """Return the day on which the run began, or its sweep: a night does not end at midnight."""
    of_sweep = re.match(r"(\d{4})(\d{2})(\d{2})T", _sweep_id(entry))
    if of_sweep:
        return "-".join(of_sweep.groups())
    return datetime.fromtimestamp(entry.manifest.began_ns / 1e9, tz=timezone.utc).date().isoformat()


def _is_meant(entry: Listed, wanted: str) -> bool:
    from orchestrator.store.stamps import PARTIAL

    folder = Path(wanted).name.removesuffix(PARTIAL)
    return bool(folder) and (entry.run.startswith(folder) or entry.run.endswith(folder))


@dataclass(frozen=True)
class Here:
    """A results folder; one that does not exist has no runs."""

    results: Path

    @property
    def root(self) -> str:
        return str(self.results)

    @cached_property
    def _known(self) -> tuple[Stamp | None, Catalogue]:
        """The catalogue, and the stamp that its file had before it was read."""
        from orchestrator.store.compact import catalogue

        return self._now(), catalogue.read(self.results)

    @property
    def _catalogue(self) -> Catalogue:
        return self._known[1]

    def _now(self) -> Stamp | None:
        from orchestrator.store.compact import catalogue

        return stamp_of(self.results / catalogue.FOLDER / catalogue.FILE)

    def renewed(self) -> Here | None:
        return Here(self.results) if self._now() != self._known[0] else None

    def listing(self) -> Listing:
        from orchestrator.store import index

        return index.listing(self.results)

    def every(self) -> Picked:
        """Return all runs; only the manifests of those are read that changed since the store was compacted."""
        known = self._compacted_manifests()
        stamps = dict(manifest_stamps(self.results))
        newer = {folder for folder, stamp in stamps.items() if known.get(folder) != stamp}
        briefs = {folder_of(entry): entry for entry in self._briefs(newer)}
        sealed = [folder for folder in stamps if folder not in newer or (folder in briefs and briefs[folder].sealed)]
        unsealed = [entry for entry in briefs.values() if not entry.sealed]

        def entries(folders: Sequence[str]) -> list[Listed]:
            missing = [folder for folder in folders if folder not in briefs]
            briefs.update((folder_of(entry), entry) for entry in self._briefs(missing))
            return [briefs[folder] for folder in folders if folder in briefs]

        return Picked(sealed, unsealed, entries)

    def _compacted_manifests(self) -> dict[str, Stamp]:
        """Return the stamp of each manifest when the store was compacted, by run folder."""
        from orchestrator.store import digests
        from orchestrator.store.compact import catalogue, targets

        files = catalogue.usable(self.results, self._catalogue.tables.get(targets.BRIEFS, ()), digests.of(self.results))
        return dict(catalogue.stamps_of_manifests(self._catalogue, files))

    def _briefs(self, folders: Collection[str]) -> list[Listed]:
        """Return those of these runs whose manifest can be read."""
        if len(folders) > _FEW:
            wanted = set(folders)
            for problem in self.listing().problems:
                console.note(f"left out: {problem}")
            return [entry for entry in self.listing().entries if folder_of(entry) in wanted]
        return list(self._read(folders)) if folders else []

    def _read(self, folders: Iterable[str]) -> Iterator[Listed]:
        from orchestrator.store.manifests import manifest as manifests
        from orchestrator.store.rundir import Listed

        for folder in folders:
            path = self.results / folder
            try:
                yield Listed(path, manifests.summary(path / MANIFEST))
            except StoreError as error:
                console.note(f"left out: {error.message}", hint=error.hint)

    def find(self, wanted: str) -> Entry:
        from orchestrator.store import rundir

        return rundir.find(self.results, wanted)

    def sources(self, table: str, folders: Sequence[str]) -> Sources:
        from orchestrator.store.compact import catalogue, targets

        find = catalogue.sources_of_manifests if table in targets.OF_MANIFESTS else catalogue.sources_of_table
        return find(self.results, self._catalogue, table, folders)

    def connected(self) -> duckdb.DuckDBPyConnection:
        import duckdb

        return duckdb.connect(":memory:")

    def brought(self, entry: Listed, *, want: Callable[[str], bool] | None = None) -> Path:  # noqa: ARG002 - all is here
        return entry.path
