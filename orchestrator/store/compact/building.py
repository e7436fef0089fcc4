"""Writes the files of a compacted store: rows of runs, from files compacted before and from run folders."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import OrchError, StoreError
from orchestrator.core.paths import safepath
from orchestrator.store import rundir
from orchestrator.store.compact import catalogue
from orchestrator.store.compact.catalogue import FOLDER, RUN_FOLDER, File
from orchestrator.store.compact.targets import BRIEFS, OF_MANIFESTS, Target
from orchestrator.store.manifests import coding
from orchestrator.store.rundir import Listed
from orchestrator.store.stamps import stamp_of
from orchestrator.store.tabular import manifest_tables, tables

if TYPE_CHECKING:
    import pyarrow as pa

_BRIEF = "brief"
_ABOUT = b"orch.compacted"  # in a file's metadata: what it is made of, and its runs, those without rows too
_ROWS_PER_GROUP = 1 << 18
_ROWS: Mapping[str, Callable[[Sequence[Listed]], pa.Table]] = {
    "runs": manifest_tables.runs_table,
    "windows": manifest_tables.windows_table,
    "hosts": manifest_tables.hosts_table,
}


@dataclass(frozen=True, slots=True)
class Built:
    """A file of the catalogue to come, whether it is new to it, and what is wrong with runs that could not be read."""

    file: File
    new: bool
    problems: tuple[str, ...]


@dataclass(slots=True)
class Builder:
    """Writes files of a store's compacted tables: `briefs` are its runs by folder."""

    results: Path
    briefs: Mapping[str, Listed]
    earlier: Mapping[str, Sequence[tuple[File, frozenset[str]]]]  # by table: files, with the folders that hold in them
    problems: list[str] = field(default_factory=list)

    def built(self, target: Target, known: File | None) -> Built:
        """The file of a target: the one that is known, one that an interrupted call finished, or one written now.

        `known` is of the same runs, with places of its own; the folders in it are those of `earlier`.
        """
        self.problems = []
        if known is not None:
            held = next(set(found) for file, found in self.earlier[target.table] if file is known)
            return self._told(target, known, held, new=False)
        made_of = target.made_of
        name, held = self._finished(target, made_of) or self._write(target, made_of)
        path = self.results / FOLDER / name
        import pyarrow.parquet as pq

        rows, (_, blocks) = pq.read_metadata(path).num_rows, catalogue.digested(path)
        file = File(
            name=name,
            bytes=path.stat().st_size,
            rows=rows,
            runs=(),
            stamps=coding.raw([]),
            made_of=made_of,
            blocks=blocks,
        )
        return self._told(target, file, held, new=True)

    def _told(self, target: Target, file: File, held: Set[str], *, new: bool) -> Built:
        members = [one for one in target.members if one.folder in held]
        stamps = coding.raw([one.stamp for one in members])
        file = replace(file, runs=tuple(one.place for one in members), stamps=stamps)
        return Built(file, new, tuple(self.problems))

    def _finished(self, target: Target, made_of: str) -> tuple[str, set[str]] | None:
        """A file with a target's rows that no catalogue names yet, and the folders of the runs in it."""
        for path in sorted((self.results / FOLDER / target.table).glob(f"{target.partition}-*.parquet")):
            about = _about(path) if stamp_of(path) else None
            if about is not None and about[0] == made_of and rundir.sha256(path).startswith(path.stem[-16:]):
                return f"{target.table}/{path.name}", about[1]
        return None

    def _write(self, target: Target, made_of: str) -> tuple[str, set[str]]:
        """Write a file, whole or not at all; gives its name and the folders of the runs that are in it."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        folder = self.results / FOLDER / target.table
        folder.mkdir(parents=True, exist_ok=True)
        new = folder / f".{target.partition}-{made_of}.parquet.new"
        held: set[str] = set()
        schema = _schema(target.table)
        with safepath.fresh(new) as file:
            with pq.ParquetWriter(file, schema, **_form(schema)) as writer:
                waiting, count = [schema.empty_table()], 0
                for rows in self._rows(target, held):
                    waiting.append(rows)
                    count += rows.num_rows
                    if count >= _ROWS_PER_GROUP:
                        writer.write_table(pa.concat_tables(waiting))
                        waiting, count = [], 0
                if waiting:
                    writer.write_table(pa.concat_tables(waiting))
                about = json.dumps({"made_of": made_of, "run_folders": sorted(held)})
                writer.add_key_value_metadata({_ABOUT: about.encode()})
            file.flush()
            os.fsync(file.fileno())
        name = f"{target.table}/{target.partition}-{rundir.sha256(new)[:16]}.parquet"
        new.replace(self.results / FOLDER / name)
        return name, held

    def _rows(self, target: Target, held: set[str]) -> Iterator[pa.Table]:
        """The rows of a target's runs; the folders of those that could be read go into `held`."""
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        wanted = {one.folder for one in target.members}
        for file, true in self.earlier.get(target.table, ()):
            if not (mine := true & wanted - held):
                continue
            with pq.ParquetFile(self.results / FOLDER / file.name) as parquet:
                if parquet.schema_arrow.remove_metadata() != _schema(target.table):
                    continue  # of an older version of the tables
                for group in range(parquet.num_row_groups):
                    rows = parquet.read_row_group(group).replace_schema_metadata(None)
                    yield rows.filter(pc.is_in(rows[RUN_FOLDER], value_set=_strings(sorted(mine))))
            held |= mine
        for member in target.members:
            if member.folder not in held and (found := self._of_run(target.table, member.folder)) is not None:
                held.add(member.folder)
                yield from found

    def _of_run(self, table: str, folder: str) -> list[pa.Table] | None:
        """The rows of one run; None, with a problem, where they cannot be read."""
        try:
            return [_in_front(folder, rows) for rows in self._read(table, folder)]
        except (OrchError, OSError) as error:
            self.problems.append(error.message if isinstance(error, OrchError) else f"{folder}: {error}")
            return None

    def _read(self, table: str, folder: str) -> Iterator[pa.Table]:
        import pyarrow as pa

        if table == BRIEFS:
            text = coding.encoded(self.briefs[folder].manifest).decode()
            yield pa.table({_BRIEF: _strings([text])})
        elif table in OF_MANIFESTS:
            path = self.results / folder if table == "hosts" else Path(folder)  # the store may be put elsewhere
            yield _ROWS[table]([Listed(path, self.briefs[folder].manifest)])
        else:
            file = safepath.regular(self.results / folder, f"tables/{table}.parquet")
            if file is None:
                raise StoreError(f"{folder}: its table {table} is gone")
            yield from tables.groups(file.parent, table)


def _in_front(folder: str, rows: pa.Table) -> pa.Table:
    return rows.replace_schema_metadata(None).add_column(0, RUN_FOLDER, _strings([folder] * rows.num_rows))


def _strings(values: Sequence[str]) -> pa.Array:
    import pyarrow as pa

    return pa.array(values, pa.string())


def _schema(table: str) -> pa.Schema:
    """The columns of a compacted file: the run's folder, then those that queries see."""
    import pyarrow as pa

    if table == BRIEFS:
        of_table = pa.schema([(_BRIEF, pa.string())])
    elif table in OF_MANIFESTS:
        of_table = manifest_tables.arrow_schema(OF_MANIFESTS[table].columns)
    else:
        of_table = tables.schema(table).remove_metadata()
    return of_table.insert(0, pa.field(RUN_FOLDER, pa.string()))


def _form(schema: pa.Schema) -> dict[str, Any]:
    """How columns are written: figures differ in every row, so that a dictionary of them would only be read besides."""
    import pyarrow as pa

    figures = [field.name for field in schema if pa.types.is_floating(field.type)]
    others = [field.name for field in schema if field.name not in figures]
    return {
        "use_dictionary": others,
        "compression": {**dict.fromkeys(others, "zstd"), **dict.fromkeys(figures, "snappy")},
    }


def _about(path: Path) -> tuple[str, set[str]] | None:
    """What a compacted file is made of, and the folders of the runs in it; None for one that is not ours."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        found = json.loads((pq.read_metadata(path).metadata or {})[_ABOUT])
        return str(found["made_of"]), set(found["run_folders"])
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError):
        return None
