"""A store of runs as commands read it: the results folder of this machine, or one elsewhere behind a URL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from orchestrator.core.errors import ConfigError, StoreError
from orchestrator.core.paths import safepath
from orchestrator.store.picked import Picked, of_entries

if TYPE_CHECKING:
    import duckdb

    from orchestrator.store.compact.sources import Sources
    from orchestrator.store.index import Listing
    from orchestrator.store.listing import Filter
    from orchestrator.store.rundir import Entry, Listed

T = TypeVar("T")


class Store(Protocol):
    """What reads need of a store."""

    @property
    def root(self) -> str:
        """Where its run folders are, as people write it."""

    def listing(self) -> Listing:
        """Every run in brief, in order of path, and what is wrong with those that cannot be read."""

    def every(self) -> Picked:
        """All runs."""

    def find(self, wanted: str) -> Entry:
        """The run with this id, a unique beginning or end of it, or `last`; StoreError where there is none."""

    def sources(self, table: str, folders: Sequence[str]) -> Sources:
        """Where the rows of a table (of files or of manifests) of these sealed runs lie."""

    def connected(self) -> duckdb.DuckDBPyConnection:
        """A new connection of DuckDB's that can read what `sources` gives."""

    def renewed(self) -> Store | None:
        """The store as it is now; None where it was not compacted since this one was opened."""

    def brought(self, entry: Listed, *, want: Callable[[str], bool] | None = None) -> Path:
        """The folder of a run on this machine, in which there are its tables and the facts of its hosts.

        `want` decides by the path in the run's folder instead.
        """


def is_elsewhere(results: str) -> bool:
    """Whether a store is named by a URL."""
    return "://" in results


def opened(results: str) -> Store:
    """The store that a folder or a URL names."""
    if is_elsewhere(results):
        from orchestrator.store.elsewhere.reading import Elsewhere

        return Elsewhere.opened(results)
    from orchestrator.store.here import Here

    return Here(Path(safepath.utf8(results)))


def answered(store: Store, ask: Callable[[Store], T]) -> T:
    """What a question gives; asked again where compacting replaced files while it was answered."""
    try:
        return ask(store)
    except (StoreError, ConfigError):
        newer = store.renewed()
        if newer is None:
            raise
    return answered(newer, ask)


def picked(store: Store, runs: Sequence[str], wanted: Filter) -> Picked:
    """All runs of a store, or those named by id, part of one, or `last`, as far as a filter lets them through."""
    from orchestrator.store import listing

    if not runs and wanted == listing.Filter():
        return store.every()
    return of_entries(listing.select(named(store, runs), wanted))


def named(store: Store, runs: Iterable[str]) -> list[Listed]:
    """All runs of a store, or those that are named by id, part of one, or `last`."""
    found = store.listing().entries
    if not runs:
        return found
    chosen = []
    for wanted in runs:
        hits = [entry for entry in found if _is_meant(entry, wanted)]
        hits = [max(found, key=lambda entry: entry.run)] if wanted == "last" and found else hits
        if not hits:
            raise StoreError(f"{wanted}: no such run in {store.root}", hint="orch ls")
        chosen += hits
    return chosen


def _is_meant(entry: Listed, wanted: str) -> bool:
    from orchestrator.store.stamps import PARTIAL

    folder = Path(wanted).name.removesuffix(PARTIAL)
    return bool(folder) and (entry.run.startswith(folder) or entry.run.endswith(folder))
