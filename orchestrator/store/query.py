"""The tables of many runs as one: DuckDB over compacted files, run folders and manifests, with views of `views`."""

from __future__ import annotations

import re
import stat
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from orchestrator.core.errors import ConfigError, StoreError
from orchestrator.parts.schema.column import Column, ColumnType, Table
from orchestrator.store import manifest_tables, tables, views
from orchestrator.store.compact.catalogue import RUN_FOLDER
from orchestrator.store.compact.sources import Sources
from orchestrator.store.rundir import Listed
from orchestrator.store.stores import Picked, Store

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

T = TypeVar("T")
OF_MANIFESTS: Mapping[str, tuple[Table, Callable[[Sequence[Listed]], pa.Table]]] = {
    "runs": (manifest_tables.RUNS, manifest_tables.runs_table),
    "windows": (manifest_tables.WINDOWS, manifest_tables.windows_table),
    "hosts": (manifest_tables.HOSTS, manifest_tables.hosts_table),
}
FORMATS = ("csv", "parquet", "json")
_SQL_TYPES: Mapping[ColumnType, str] = {"int64": "bigint", "float64": "double", "string": "varchar", "bool": "boolean"}
_READ = "union_by_name = true, hive_partitioning = false"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a query gives: the names of its columns, each one of its own, and its rows."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


def opened(store: Store, picked: Picked, mentioned: Iterable[str]) -> duckdb.DuckDBPyConnection:
    """A connection with every table and view: those that are mentioned with the rows of the picked runs, others empty.

    Of unsealed runs there is a row in `runs`, and nothing else.
    """
    connection = store.connected()
    wanted = views.needed(mentioned)
    for name, (table, _) in OF_MANIFESTS.items():
        parts = _of_manifests(connection, store, picked, name) if name in wanted else []
        _create(connection, name, table.columns, parts)
    for name in views.OF_FILES:
        table_of = views.described(name)
        parts = _of_files(connection, store, picked, views.file_of(name), name) if name in wanted else []
        _create(connection, name, table_of.columns, parts)
    for name, view in views.VIEWS.items():
        connection.execute(f"create view {name} as {view.sql}")
    return connection


def _create(
    connection: duckdb.DuckDBPyConnection, name: str, columns: Mapping[str, Column], parts: Sequence[str]
) -> None:
    """A view of the rows of all parts, each a select; without any it is empty."""
    nulls = ", ".join(f'null::{_SQL_TYPES[column.type]} as "{key}"' for key, column in columns.items())
    connection.execute(f"create view {name} as {' union all '.join(parts) or f'select {nulls} where false'}")


def _of_files(connection: duckdb.DuckDBPyConnection, store: Store, picked: Picked, table: str, name: str) -> list[str]:
    """Selects that together give a table's rows."""
    columns = views.described(name).columns
    found = store.sources(table, picked.sealed)
    parts = _compacted(connection, table, columns, found)
    if found.folders:
        files = [f"{store.root}/{folder}/tables/{table}.parquet" for folder in found.folders]
        parts.append(_select(connection, columns, f"read_parquet({_listed(files)}, {_READ})"))
    return parts


def _of_manifests(connection: duckdb.DuckDBPyConnection, store: Store, picked: Picked, name: str) -> list[str]:
    """The same for a table that is made of manifests."""
    table, rows = OF_MANIFESTS[name]
    found = store.sources(name, picked.sealed)
    columns = table.columns
    parts = _compacted(connection, name, columns, found)
    if name == "runs" and parts:
        root = f"{_quoted(store.root + '/')} || path as path"
        parts = [f"select * replace ({root}) from ({part})" for part in parts]  # noqa: S608 - of our own making
    newer = picked.entries(found.folders) + (list(picked.unsealed) if name == "runs" else [])
    if newer:
        connection.register(f"_newer_{name}", rows(newer))
        parts.append(f"select * from _newer_{name}")  # noqa: S608 - a name of ours
    return parts


def _compacted(
    connection: duckdb.DuckDBPyConnection, table: str, columns: Mapping[str, Column], found: Sources
) -> list[str]:
    parts = []
    if found.whole:
        parts.append(_select(connection, columns, f"read_parquet({_listed(found.whole)}, {_READ})"))
    if found.partly:
        connection.execute(f"create temp table _kept_{table}(file varchar, folder varchar)")
        for file, folders in found.partly.items():
            connection.execute(f"insert into _kept_{table} select ?, unnest(?::varchar[])", [file, folders])
        stored = f"read_parquet({_listed(found.partly)}, {_READ}, filename = true)"
        kept = f"(filename, {RUN_FOLDER}) in (select (file, folder) from _kept_{table})"  # noqa: S608 - names of ours
        parts.append(f"{_select(connection, columns, stored)} where {kept}")
    return parts


def _select(connection: duckdb.DuckDBPyConnection, columns: Mapping[str, Column], stored: str) -> str:
    """A select of today's columns from files, some of which may be of an older version of the tables."""
    import duckdb

    older = {new: old for old, new in tables.RENAMED.items()}
    try:
        there = set(connection.sql(f"select * from {stored}").columns)  # noqa: S608 - names of files, quoted
    except duckdb.Error as error:
        raise StoreError(f"tables cannot be read: {error}", hint="was the results folder copied whole?") from None
    found = []
    for name, column in columns.items():
        known = [f'"{each}"' for each in (name, older.get(name)) if each in there]
        found.append(f'coalesce({", ".join([*known, "null"])})::{_SQL_TYPES[column.type]} as "{name}"')
    return f"select {', '.join(found)} from {stored}"  # noqa: S608 - likewise


def _listed(files: Iterable[str]) -> str:
    """Files as a list of SQL's: each itself, no pattern."""
    return f"[{', '.join(_quoted(re.sub(r'([*?[])', r'[' + chr(92) + r'1]', file)) for file in files)}]"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def select(store: Store, picked: Picked, sql: str) -> Answer:
    """What a query gives; ConfigError with DuckDB's words where it takes none."""
    return _answered(store, picked, sql, lambda found: Answer(tuple(_apart(found.columns)), found.fetchall()))


def table(store: Store, picked: Picked, sql: str) -> pa.Table:
    """The same as a table of Arrow's, each column with a name of its own."""
    return _answered(store, picked, sql, lambda found: found.to_arrow_table().rename_columns(_apart(found.columns)))


def _answered(store: Store, picked: Picked, sql: str, take: Callable[[duckdb.DuckDBPyRelation], T]) -> T:
    import duckdb

    mentioned = set(re.findall(r"[a-z_]+", sql.lower()))
    with opened(store, picked, mentioned) as connection:
        try:
            found = connection.sql(sql)
            if found is None:
                raise ConfigError(
                    "the statement gives no rows; accepted: select, show tables, describe TABLE, summarize TABLE"
                )
            return take(found)
        except duckdb.Error as error:
            told = str(error)
            raise ConfigError(told, hint=_hint(told, mentioned)) from None


def _apart(columns: Sequence[str]) -> list[str]:
    """Names of columns, of which joined tables have some twice: the second `run` is `run_2`."""
    found: list[str] = []
    for name in columns:
        other, number = name, 1
        while other in found or (number > 1 and other in columns):
            number += 1
            other = f"{name}_{number}"
        found.append(other)
    return found


def _hint(told: str, mentioned: Iterable[str]) -> str | None:
    """What would help with an error of DuckDB's."""
    if "does not exist" in told:
        return f"tables are {', '.join(names())}"
    if "not found in FROM clause" in told:
        known = [name for name in names() if name in set(mentioned)]
        return "; ".join(f"orch tables {name}" for name in known) or None
    return None


def names() -> tuple[str, ...]:
    """Every table and view that a query may name, those of manifests first."""
    return (*OF_MANIFESTS, *views.NAMES)


def export(store: Store, picked: Picked, name: str, output: Path) -> int:
    """Write a table over runs to a file, as its name ends, also one that is larger than memory; gives its rows."""
    import duckdb

    if name not in names():
        raise ConfigError(f"{name}: no such table; accepted: {', '.join(names())}")
    kind = output.suffix.removeprefix(".")
    if kind not in FORMATS:
        raise ConfigError(f"{output}: accepted: a name that ends in one of {', '.join('.' + each for each in FORMATS)}")
    new = output.with_name(f".{output.name}.new")
    with opened(store, picked, [name]) as connection:
        options = {"csv": "format csv, header", "parquet": "format parquet, compression zstd", "json": "format json"}
        try:
            connection.execute(f"copy {name} to '{str(new).replace(chr(39), chr(39) * 2)}' ({options[kind]})")
            ((rows,),) = connection.execute(f"select count(*) from {name}").fetchall()  # noqa: S608 - of our own names
            new.replace(output)
        except (duckdb.Error, OSError) as error:
            raise StoreError(f"{output}: cannot be written: {error}") from None
    return int(rows)


def zipped(store: Store, entry: Listed, output: Path) -> int:
    """Write a sealed run with all its files as one zip; gives the number of files."""
    if not entry.sealed:
        raise StoreError(f"{entry.run} is not sealed", hint="orch recover")
    folder = store.brought(entry, want=lambda _: True)
    new = output.with_name(f".{output.name}.new")
    files = sorted(path for path in folder.rglob("*") if stat.S_ISREG(path.lstat().st_mode))  # no link is followed
    try:
        with zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
            for file in files:
                archive.write(file, f"{entry.run}/{file.relative_to(folder)}")
        new.replace(output)
    except OSError as error:
        raise StoreError(f"{output}: cannot be written: {error.strerror}") from None
    return len(files)
