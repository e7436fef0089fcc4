"""Query the tables of many runs as one with SQL: DuckDB over compacted files, run folders and manifests.

A user's SQL may be one statement, which reads the tables that it is asked over and touches nothing else. DuckDB itself
can read and write every file that this process can, load extensions and open connections. So its access is taken away
but for the files that the tables are read from, for good; and since it would write these too, a statement that changes
anything, or carries out text as SQL, is refused before it begins.
"""

from __future__ import annotations

import itertools
import re
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from orchestrator.core.errors import ConfigError, StoreError
from orchestrator.core.screen import layout
from orchestrator.parts.schema.column import Column, ColumnType, Table, unit
from orchestrator.store import atomic, stores
from orchestrator.store.compact.catalogue import RUN_FOLDER, Sources
from orchestrator.store.picked import Picked
from orchestrator.store.stores import Store
from orchestrator.store.tabular import manifest_tables, tables, views

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


_KINDS = ("SELECT", "MULTI", "EXPLAIN", "PRAGMA")  # MULTI: a pivot, which finds its columns first
_CHANGING = frozenset({"copy", "insert", "update", "delete", "merge", "truncate", "export", "import"})
_OF_TEXT = frozenset({"query", "json_execute_serialized_sql", "import_database", "copy_database"})
_ACCEPTED = "accepted: one select, show tables, describe TABLE, summarize TABLE or explain select"
_HINT = "`orch query --unrestricted` carries out any SQL, with all that you may do yourself"


_SQL_TYPES: Mapping[ColumnType, str] = {"int64": "bigint", "float64": "double", "string": "varchar", "bool": "boolean"}
_FOLDER = {RUN_FOLDER: Column("string", "the run's folder, from the store's")}
_READ = "union_by_name = true, hive_partitioning = false"


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a query: unique names of its columns, and its rows."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]


def opened(store: Store, picked: Picked, mentioned: Iterable[str]) -> duckdb.DuckDBPyConnection:
    """Open a connection with the tables and views that are mentioned, over the picked runs.

    It may do whatever this process may: SQL of others goes through `select` or `table`.
    """
    return _opened(store, picked, mentioned)[0]


def _opened(store: Store, picked: Picked, mentioned: Iterable[str]) -> tuple[duckdb.DuckDBPyConnection, list[str]]:
    """Open the connection; return it and the files that its tables are read from.

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
                parts = _selects(connection, table, columns, found)
                files += [*found.compacted, *_files_of_folders(table, found)]
            made.append(_created(name, columns, parts))
    made += [f"create view {name} as {view.sql}" for name, view in views.VIEWS.items() if name in there]
    try:
        connection.execute("; ".join(made))
    except duckdb.Error as error:
        raise StoreError(f"{store.root}: tables cannot be read: {error}") from None
    return connection, files


def _created(name: str, columns: Mapping[str, Column], parts: Sequence[str]) -> str:
    """Return the SQL that creates a view of the rows of all parts, each a select; without parts it is empty."""
    return f"create view {name} as {' union all '.join(parts) or _no_rows(columns)}"


def _of_manifests(
    connection: duckdb.DuckDBPyConnection, store: Store, picked: Picked, name: str, found: Sources
) -> list[str]:
    """Return selects that together give the rows of a table that is made of manifests."""
    table, rows = OF_MANIFESTS[name]
    columns = table.columns
    parts = _selects_of_compacted(connection, name, columns, found)
    if name == "runs" and parts:
        root = f"{_quoted(store.root + '/')} || path as path"
        parts = [f"select * replace ({root}) from ({part})" for part in parts]  # noqa: S608 - of our own making
    newer = picked.entries(found.folders) + (list(picked.unsealed) if name == "runs" else [])
    if newer:
        connection.register(f"_newer_{name}", rows(newer))
        parts.append(f"select * from _newer_{name}")  # noqa: S608 - a name of ours
    return parts


def select(store: Store, picked: Picked, sql: str, *, unrestricted: bool = False) -> Answer:
    """Return the answer of a query; ConfigError with DuckDB's words for an invalid one.

    It may be one statement that reads the tables and nothing else, unless it is `unrestricted`.
    """
    return _answered(store, picked, sql, _rows, unrestricted=unrestricted)


def table(store: Store, picked: Picked, sql: str, *, unrestricted: bool = False) -> pa.Table:
    """Return the answer of a query as an Arrow table, each column with a name of its own."""
    return _answered(store, picked, sql, _arrow, unrestricted=unrestricted)


def _rows(connection: duckdb.DuckDBPyConnection, sql: str) -> Answer | None:
    """Return the rows of a query.

    It is executed as it stands: a relation would be bound once more, over all files.
    """
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
                _check(connection, sql)
                _confine(connection, files, spill=spill)
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
    """Read these columns of a table's rows, of the sealed runs in these folders (from the store's).

    The run's folder stands in front, as the column `run_folder`. A run's rows come in their order, and nothing else of
    the files is read.
    """
    import duckdb

    wanted = {**_FOLDER, **{name: views.columns_of(table)[name] for name in names}}

    def ask(store: Store) -> pa.Table:
        with store.connected() as connection:
            parts = _selects(connection, table, wanted, store.sources(table, folders))
            sql = " union all ".join(parts) or _no_rows(wanted)
            try:
                return connection.sql(sql).to_arrow_table()
            except duckdb.Error as error:
                raise StoreError(f"{store.root}: {table} cannot be read: {error}") from None

    return stores.answered(store, ask)


def _apart(columns: Sequence[str]) -> list[str]:
    """Return unique names of columns: of joined tables, the second `run` becomes `run_2`."""
    found: list[str] = []
    for name in columns:
        other, number = name, 1
        while other in found or (number > 1 and other in columns):
            number += 1
            other = f"{name}_{number}"
        found.append(other)
    return found


def _hint(message: str, mentioned: Iterable[str]) -> str | None:
    """Return a hint for an error of DuckDB's."""
    if "does not exist" in message:
        return f"tables are {', '.join(names())}"
    if "not found in FROM clause" in message:
        known = [name for name in names() if name in set(mentioned)]
        return "; ".join(f"orch tables {name}" for name in known) or None
    return None


def names() -> tuple[str, ...]:
    """Return every table and view that a query may name, those of manifests first."""
    return (*OF_MANIFESTS, *views.NAMES)


def export(store: Store, picked: Picked, name: str, output: Path) -> int:
    """Write a table over runs to a file in the format of its extension; return the number of rows.

    It may be larger than memory.
    """
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
                connection.execute(f"copy {name} to {_quoted(str(new))} ({options[kind]})")
                sql = f"select count(*) from {name}"  # noqa: S608 - of our own names
                ((rows,),) = connection.execute(sql).fetchall()
        except (duckdb.Error, OSError) as error:
            raise StoreError(f"{output}: cannot be written: {error}") from None
    return int(rows)


def zipped(store: Store, entry: Listed, output: Path) -> int:
    """Write a sealed run with all its files as one zip; return the number of files."""
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


def _check(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Raise ConfigError for SQL that is not a single statement, or one that may do more than read."""
    import duckdb

    try:
        sql.encode()
        kinds = [one.type.name for one in connection.extract_statements(sql)]
    except UnicodeEncodeError:
        raise ConfigError("the query is not text in UTF-8") from None
    except duckdb.Error:
        return  # no SQL: DuckDB says where, when it is asked
    if len(kinds) > 1:
        raise ConfigError(f"{len(kinds)} statements are too many; {_ACCEPTED}", hint=_HINT)
    if kinds and kinds[0] not in _KINDS:
        raise ConfigError(f"{kinds[0].lower()} is refused: it may do more than read tables; {_ACCEPTED}", hint=_HINT)
    for word in _acting(sql):
        raise ConfigError(f"`{word}` is refused in a query: it may do more than read tables", hint=_HINT)


def _acting(sql: str) -> Iterable[str]:
    """Yield the words of a statement, or of its parts, that change something or carry out text."""
    import duckdb

    found, data = duckdb.tokenize(sql), sql.encode()  # by the places of their first bytes
    ends = [*(start for start, _ in found), len(data)][1:]
    words = [
        (kind.name, data[start:end].decode(errors="replace").strip().lower())
        for (start, kind), end in zip(found, ends, strict=True)
        if kind.name != "comment"
    ]
    for (kind, word), (_, following) in itertools.pairwise([*words, ("", "")]):
        called = kind == "identifier" and word.strip('"') in _OF_TEXT and following.startswith("(")
        if called or (kind == "keyword" and word in _CHANGING):
            yield word


def _confine(connection: duckdb.DuckDBPyConnection, files: Iterable[str], *, spill: str) -> None:
    """Restrict a connection to these files for good: no other file, extension, Python variable or setting.

    What does not fit into memory goes to the folder `spill`, which is its own: DuckDB's usual one is `.tmp` where the
    command was called, and what lies there could be read.
    """
    names = {name for file in files for name in (file, _as_pattern(file))}
    allowed = ", ".join(map(_quoted, sorted(names)))
    connection.execute(
        f"set temp_directory = {_quoted(spill)}; set allowed_paths = [{allowed}]; "
        "set enable_external_access = false; set python_enable_replacements = false; set lock_configuration = true"
    )


def _selects(
    connection: duckdb.DuckDBPyConnection, table: str, columns: Mapping[str, Column], found: Sources
) -> list[str]:
    """Return selects that together give these columns of a table's rows, which lie where `found` says.

    Among the columns may be the run's folder (`_FOLDER`). StoreError for files that cannot be read.
    """
    parts = _selects_of_compacted(connection, table, columns, found)
    if found.folders:
        before, after = f"{found.root}/", f"/tables/{table}.parquet"
        stored = f"read_parquet({_listed(_files_of_folders(table, found))}, {_READ}"
        of_path = f"substr(filename, {len(before) + 1}, length(filename) - {len(before) + len(after)})"
        if RUN_FOLDER in columns:
            parts.append(_select(connection, columns, f"{stored}, filename = true)", {RUN_FOLDER: of_path}))
        else:
            parts.append(_select(connection, columns, f"{stored})"))
    return parts


def _files_of_folders(table: str, found: Sources) -> list[str]:
    """Return the files of a table in run folders."""
    return [f"{found.root}/{folder}/tables/{table}.parquet" for folder in found.folders]


def _selects_of_compacted(
    connection: duckdb.DuckDBPyConnection, table: str, columns: Mapping[str, Column], found: Sources
) -> list[str]:
    """Return selects that give these columns of a table's rows in compacted files alone."""
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


def _select(
    connection: duckdb.DuckDBPyConnection,
    columns: Mapping[str, Column],
    stored: str,
    known_as: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Return a select of today's columns from files, some of which may be of an older version of the tables.

    `known_as` has the expressions of columns that no file has.
    """
    import duckdb

    try:
        found = connection.execute(f"describe select * from {stored}").fetchall()  # noqa: S608 - names of files, quoted
    except duckdb.Error as error:
        raise StoreError(f"tables cannot be read: {error}", hint="was the results folder copied whole?") from None
    there, older = {name for name, *_ in found}, {new: old for old, new in tables.RENAMED.items()}
    values = []
    for name, column in columns.items():
        known = [f'"{each}"' for each in (name, older.get(name)) if each in there] or [known_as.get(name, "null")]
        value = f"coalesce({', '.join(known)})" if len(known) > 1 else known[0]
        values.append(f'{value}::{_SQL_TYPES[column.type]} as "{name}"')
    return f"select {', '.join(values)} from {stored}"  # noqa: S608 - likewise


def _no_rows(columns: Mapping[str, Column]) -> str:
    """Return a select of these columns that gives no row."""
    nulls = ", ".join(f'null::{_SQL_TYPES[column.type]} as "{name}"' for name, column in columns.items())
    return f"select {nulls} where false"


def _listed(files: Iterable[str]) -> str:
    """Return files as an SQL list, each as itself and not as a pattern."""
    return f"[{', '.join(_quoted(_as_pattern(file)) for file in files)}]"


def _as_pattern(file: str) -> str:
    """Escape a file's name for DuckDB where it takes patterns, to match the file itself and no other."""
    return re.sub(r"([*?[])", r"[\1]", file)


def _quoted(text: str) -> str:
    """Return a text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def described(name: str) -> Table:
    """Return the definition of a table or a view, its columns among it; ConfigError for an unknown name."""
    if name in OF_MANIFESTS:
        return OF_MANIFESTS[name][0]
    if name not in views.NAMES:
        raise ConfigError(f"{name}: no such table; accepted: {', '.join(names())}")
    return views.described(name)


def kind_of(name: str) -> str:
    """Return where the rows of a table come from."""
    return "manifests" if name in OF_MANIFESTS else "view" if name in views.VIEWS else "files"


def tables_text(width: int | None) -> str:
    """Return a line for every table."""
    most = max(map(len, names()))
    return "\n".join(
        layout.hanging(f"a row: {described(name).row}", width, indent=f"{name:<{most}}  ") for name in names()
    )


def table_text(name: str, width: int | None) -> str:
    """Return one table with its columns as text."""
    table = described(name)
    cells = list(_cells(table))
    widths = [max(len(row[place]) for row in cells) for place in (0, 1)]
    lines = [layout.hanging(f"{name}: a row is {table.row}", width, rest="  "), ""]
    for column, kind, in_unit, text in cells:
        start = f"{column:<{widths[0]}}  {kind:<{widths[1]}}  "
        lines.append(layout.hanging(text + (f" ({in_unit})" if in_unit else ""), width, indent=start).rstrip())
    return "\n".join(lines)


def _cells(table: Table) -> Iterator[tuple[str, str, str, str]]:
    """Return the name, type, unit and meaning of every column."""
    for name, column in table.columns.items():
        yield name, column.type, unit(name), column.text


def tables_page() -> str:
    """Return all tables as Markdown."""
    lines = []
    for name in names():
        table = described(name)
        lines += [f"## `{name}`", "", f"A row: {table.row}. From: {kind_of(name)}.", ""]
        lines += ["| column | type | unit | |", "|---|---|---|---|"]
        lines += [f"| `{column}` | {kind} | {in_unit} | {text} |" for column, kind, in_unit, text in _cells(table)]
        lines.append("")
    return "\n".join(lines)
