"""The tables of many runs as one: DuckDB over compacted files, run folders and manifests, with views of `views`."""

from __future__ import annotations

import re
import stat
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from orchestrator.core.errors import ConfigError, StoreError
from orchestrator.parts.schema.column import Column, Table
from orchestrator.store import atomic, stores
from orchestrator.store.compact.sources import Sources
from orchestrator.store.picked import Picked
from orchestrator.store.queries import confined, selects
from orchestrator.store.stores import Store
from orchestrator.store.tabular import manifest_tables, views

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from orchestrator.store.rundir import Listed

T = TypeVar("T")
OF_MANIFESTS: Mapping[str, tuple[Table, Callable[[Sequence[Listed]], pa.Table]]] = {
    "runs": (manifest_tables.RUNS, manifest_tables.runs_table),
    "windows": (manifest_tables.WINDOWS, manifest_tables.windows_table),
    "hosts": (manifest_tables.HOSTS, manifest_tables.hosts_table),
}
FORMATS = ("csv", "parquet", "json")
_OF_ALL_TABLES = re.compile("show|desc|describe|pragma.*|information_schema|(duckdb|pg|sqlite)_.*")  # words of SQL


@dataclass(frozen=True, slots=True)
class Answer:
    """What a query gives: the names of its columns, each one of its own, and its rows."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


def opened(store: Store, picked: Picked, mentioned: Iterable[str]) -> duckdb.DuckDBPyConnection:
    """A connection with the tables and views that are mentioned, and what these are made of, over the picked runs.

    It may do whatever this process may: SQL of others goes through `select` or `table`.
    """
    return _opened(store, picked, mentioned)[0]


def _opened(store: Store, picked: Picked, mentioned: Iterable[str]) -> tuple[duckdb.DuckDBPyConnection, list[str]]:
    """The connection, and the files that its tables are read from.

    Where a mentioned word asks which tables there are, all others are there too, without rows: to make them takes
    longer than most answers. Of unsealed runs there is a row in `runs`, and nothing else.
    """
    import duckdb

    words = set(mentioned)
    connection = store.connected()
    wanted, made, files = views.needed(words), [], []
    there = set(names()) if any(map(_OF_ALL_TABLES.fullmatch, words)) else wanted
    for name, (about, _) in OF_MANIFESTS.items():
        if name in there:
            parts = []
            if name in wanted:
                found = store.sources(name, picked.sealed)
                parts = _of_manifests(connection, store, picked, name, found)
                files += found.compacted
            made.append(_created(name, about.columns, parts))
    for name in views.OF_FILES:
        if name in there:
            table, columns = views.file_of(name), views.described(name).columns
            parts = []
            if name in wanted:
                found = store.sources(table, picked.sealed)
                parts = selects.of_files(connection, table, columns, found)
                files += [*found.compacted, *selects.of_folders(table, found)]
            made.append(_created(name, columns, parts))
    made += [f"create view {name} as {view.sql}" for name, view in views.VIEWS.items() if name in there]
    try:
        connection.execute("; ".join(made))
    except duckdb.Error as error:
        raise StoreError(f"{store.root}: tables cannot be read: {error}") from None
    return connection, files


def _created(name: str, columns: Mapping[str, Column], parts: Sequence[str]) -> str:
    """What makes a view of the rows of all parts, each a select; without any it is empty."""
    return f"create view {name} as {' union all '.join(parts) or selects.nothing(columns)}"


def _of_manifests(
    connection: duckdb.DuckDBPyConnection, store: Store, picked: Picked, name: str, found: Sources
) -> list[str]:
    """Selects that together give the rows of a table that is made of manifests."""
    table, rows = OF_MANIFESTS[name]
    columns = table.columns
    parts = selects.compacted(connection, name, columns, found)
    if name == "runs" and parts:
        root = f"{selects.quoted(store.root + '/')} || path as path"
        parts = [f"select * replace ({root}) from ({part})" for part in parts]  # noqa: S608 - of our own making
    newer = picked.entries(found.folders) + (list(picked.unsealed) if name == "runs" else [])
    if newer:
        connection.register(f"_newer_{name}", rows(newer))
        parts.append(f"select * from _newer_{name}")  # noqa: S608 - a name of ours
    return parts


def select(store: Store, picked: Picked, sql: str, *, unrestricted: bool = False) -> Answer:
    """What a query gives; ConfigError with DuckDB's words where it takes none.

    It may be one statement that reads the tables and nothing else (`confined`), unless it is `unrestricted`.
    """
    return _answered(store, picked, sql, _rows, unrestricted=unrestricted)


def table(store: Store, picked: Picked, sql: str, *, unrestricted: bool = False) -> pa.Table:
    """The same as a table of Arrow's, each column with a name of its own."""
    return _answered(store, picked, sql, _arrow, unrestricted=unrestricted)


def _rows(connection: duckdb.DuckDBPyConnection, sql: str) -> Answer | None:
    """The rows of a query; executed as it stands: a relation would be bound once more, over all files."""
    found: duckdb.DuckDBPyConnection | None = connection.execute(sql)  # None for no statement at all
    if found is None or found.description is None:
        return None
    return Answer(tuple(_apart([name for name, *_ in found.description])), found.fetchall())


def _arrow(connection: duckdb.DuckDBPyConnection, sql: str) -> pa.Table | None:
    found = connection.sql(sql)
    return None if found is None else found.to_arrow_table().rename_columns(_apart(found.columns))


def _answered(
    store: Store,
    picked: Picked,
    sql: str,
    take: Callable[[duckdb.DuckDBPyConnection, str], T | None],
    *,
    unrestricted: bool,
) -> T:
    mentioned = set(re.findall(r"[a-z_]+", sql.lower()))

    def ask(store: Store) -> T:
        connection, files = _opened(store, picked, mentioned)
        with tempfile.TemporaryDirectory(prefix="orch-query-", ignore_cleanup_errors=True) as spill, connection:
            if not unrestricted:
                confined.check(connection, sql)
                confined.confine(connection, files, spill=spill)
            return _taken(connection, sql, take, mentioned)

    return stores.answered(store, ask)


def _taken(
    connection: duckdb.DuckDBPyConnection,
    sql: str,
    take: Callable[[duckdb.DuckDBPyConnection, str], T | None],
    mentioned: Iterable[str],
) -> T:
    import duckdb

    try:
        found = take(connection, sql)
    except duckdb.Error as error:
        message = str(error)
        raise ConfigError(message, hint=_hint(message, mentioned)) from None
    if found is None:
        raise ConfigError("the statement gives no rows; accepted: select, show tables, describe TABLE, summarize TABLE")
    return found


def columns(store: Store, table: str, names: Sequence[str], folders: Sequence[str]) -> pa.Table:
    """These columns of a table's rows, of the sealed runs in these folders (from the store's).

    The run's folder stands in front, as the column `run_folder`. A run's rows come in their order, and nothing else of
    the files is read.
    """
    import duckdb

    wanted = {**selects.FOLDER, **{name: views.columns_of(table)[name] for name in names}}

    def ask(store: Store) -> pa.Table:
        with store.connected() as connection:
            parts = selects.of_files(connection, table, wanted, store.sources(table, folders))
            sql = " union all ".join(parts) or selects.nothing(wanted)
            try:
                return connection.sql(sql).to_arrow_table()
            except duckdb.Error as error:
                raise StoreError(f"{store.root}: {table} cannot be read: {error}") from None

    return stores.answered(store, ask)


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


def _hint(message: str, mentioned: Iterable[str]) -> str | None:
    """What would help with an error of DuckDB's."""
    if "does not exist" in message:
        return f"tables are {', '.join(names())}"
    if "not found in FROM clause" in message:
        known = [name for name in names() if name in set(mentioned)]
        return "; ".join(f"orch tables {name}" for name in known) or None
    return None


def names() -> tuple[str, ...]:
    """Every table and view that a query may name, those of manifests first."""
    return (*OF_MANIFESTS, *views.NAMES)


def export(store: Store, picked: Picked, name: str, output: Path) -> int:
    """Write a table over runs to a file, as its name ends, also one that is larger than memory; gives its rows."""
    if name not in names():
        raise ConfigError(f"{name}: no such table; accepted: {', '.join(names())}")
    kind = output.suffix.removeprefix(".")
    if kind not in FORMATS:
        raise ConfigError(f"{output}: accepted: a name that ends in one of {', '.join('.' + each for each in FORMATS)}")
    return stores.answered(store, lambda store: _written(store, picked, name, output))


def _written(store: Store, picked: Picked, name: str, output: Path) -> int:
    import duckdb

    kind = output.suffix.removeprefix(".")
    options = {"csv": "format csv, header", "parquet": "format parquet, compression zstd", "json": "format json"}
    with opened(store, picked, [name]) as connection:
        try:
            with atomic.beside(output) as new:
                connection.execute(f"copy {name} to {selects.quoted(str(new))} ({options[kind]})")
                sql = f"select count(*) from {name}"  # noqa: S608 - of our own names
                ((rows,),) = connection.execute(sql).fetchall()
        except (duckdb.Error, OSError) as error:
            raise StoreError(f"{output}: cannot be written: {error}") from None
    return int(rows)


def zipped(store: Store, entry: Listed, output: Path) -> int:
    """Write a sealed run with all its files as one zip; gives the number of files."""
    import zipfile

    if not entry.sealed:
        raise StoreError(f"{entry.run} is not sealed", hint="orch recover")
    folder = store.brought(entry, want=lambda _: True)
    files = sorted(path for path in folder.rglob("*") if stat.S_ISREG(path.lstat().st_mode))  # no link is followed
    try:
        with (
            atomic.replacing(output, durable=False) as new,
            zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive,
        ):
            for file in files:
                archive.write(file, f"{entry.run}/{file.relative_to(folder)}")
    except OSError as error:
        raise StoreError(f"{output}: cannot be written: {error.strerror}") from None
    return len(files)
