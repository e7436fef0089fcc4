"""Decide which files a compacted store has: a table's rows by day, and by month once that is over and small."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from orchestrator.parts.rows import DESCRIBED
from orchestrator.store.stamps import Stamp
from orchestrator.store.tabular import manifest_tables, views
from orchestrator.store.tabular.tables import VERSION, key_columns

MONTH_BYTES = 64 << 20  # of the run folders' files: a month with more stays in a file a day
OF_FILES = tuple(views.file_of(name) for name in views.OF_FILES)
OF_MANIFESTS = {"runs": manifest_tables.RUNS, "windows": manifest_tables.WINDOWS, "hosts": manifest_tables.HOSTS}
BRIEFS = "briefs"  # what a listing needs of each run's manifest, as JSON
ALL = (*OF_FILES, *OF_MANIFESTS, BRIEFS)
_FORM = 3  # raised when a file is written otherwise than before: all are then written anew


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A run whose rows belong into a file: its place in the catalogue, its folder, and the stamp of its own file."""

    place: int
    folder: str
    day: str  # on which it began, in UTC: 2026-11-20
    stamp: Stamp


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A file that there should be: a table's rows of these runs."""

    table: str
    partition: str  # 2026-11-20, or 2026-11
    members: tuple[Member, ...]

    @property
    def bytes(self) -> int:
        """The size of the runs' files that its rows come from."""
        return sum(one.stamp[1] for one in self.members)

    @property
    def made_of(self) -> str:
        """What tells this file from one that would be made of other runs, of changed ones, or in another way."""
        import hashlib

        about = [_FORM, _columns(self.table), [(one.folder, one.stamp) for one in self.members]]
        return hashlib.blake2b(json.dumps(about).encode(), digest_size=8).hexdigest()


def day_of(instant_ns: int) -> str:
    """Return the day in UTC of an instant; the first or last that has a name for one that is out of all bounds."""
    first, last = -62_135_596_800, 253_402_300_799  # of the years 1 and 9999
    seconds = min(max(instant_ns // 10**9, first), last)
    return datetime.fromtimestamp(seconds, tz=timezone.utc).date().isoformat()


def targets(table: str, members: Iterable[Member], *, today: str) -> Iterator[Target]:
    """Yield the files that a table should have, oldest first."""
    months: dict[str, list[Member]] = {}
    for member in sorted(members, key=lambda one: (one.day, one.folder)):
        months.setdefault(member.day[:7], []).append(member)
    for month, found in months.items():
        small = table not in OF_FILES or sum(one.stamp[1] for one in found) <= MONTH_BYTES
        if small and month < today[:7]:
            yield Target(table=table, partition=month, members=tuple(found))
        else:
            yield from _by_day(table, found)


def _by_day(table: str, members: Sequence[Member]) -> Iterator[Target]:
    days: dict[str, list[Member]] = {}
    for member in members:
        days.setdefault(member.day, []).append(member)
    for day, found in days.items():
        yield Target(table=table, partition=day, members=tuple(found))


def _columns(table: str) -> list[tuple[str, str]]:
    """Return what the columns of a table are called, and their types: with other ones a file is another file."""
    if table == BRIEFS:
        from orchestrator.store.manifests.summaries import FORMAT

        return list({"format": str(FORMAT)}.items())
    if table in OF_MANIFESTS:
        return [(name, column.type) for name, column in OF_MANIFESTS[table].columns.items()]
    columns = {**key_columns(table), **DESCRIBED[table].columns}
    return list({"version": str(VERSION), **{name: column.type for name, column in columns.items()}}.items())
