"""The results folder of this machine as a store: compacted files as far as they hold, and the folders of other runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.core.errors import StoreError
from orchestrator.core.screen import console
from orchestrator.store import verified
from orchestrator.store.compact import catalogue, sources
from orchestrator.store.compact.catalogue import Catalogue
from orchestrator.store.compact.sources import Sources
from orchestrator.store.compact.targets import BRIEFS, OF_MANIFESTS
from orchestrator.store.picked import Picked, folder_of
from orchestrator.store.stamps import MANIFEST, Stamp, manifest_stamps, stamp_of

if TYPE_CHECKING:
    import duckdb

    from orchestrator.store.index import Listing
    from orchestrator.store.rundir import Entry, Listed

_FEW = 64  # manifests that are quicker read than the index of all


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
        return self._now(), catalogue.read(self.results)

    @property
    def _catalogue(self) -> Catalogue:
        return self._known[1]

    def _now(self) -> Stamp | None:
        return stamp_of(self.results / catalogue.FOLDER / catalogue.FILE)

    def renewed(self) -> Here | None:
        return Here(self.results) if self._now() != self._known[0] else None

    def listing(self) -> Listing:
        from orchestrator.store import index

        return index.listing(self.results)

    def every(self) -> Picked:
        """All runs; only the manifests of those are read that changed since the store was compacted."""
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
        """The stamp of each manifest when the store was compacted, by run folder."""
        files = catalogue.usable(self.results, self._catalogue.tables.get(BRIEFS, ()), verified.of(self.results))
        return dict(catalogue.stamps_of_manifests(self._catalogue, files))

    def _briefs(self, folders: Collection[str]) -> list[Listed]:
        """Those of these runs whose manifest can be read."""
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
        find = sources.of_manifests if table in OF_MANIFESTS else sources.of_table
        return find(self.results, self._catalogue, table, folders)

    def connected(self) -> duckdb.DuckDBPyConnection:
        import duckdb

        return duckdb.connect(":memory:")

    def brought(self, entry: Listed, *, want: Callable[[str], bool] | None = None) -> Path:  # noqa: ARG002 - all is here
        return entry.path
