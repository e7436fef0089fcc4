"""Selects over the rows of a table wherever they lie: in compacted files as far as these hold, and in run folders."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from orchestrator.core.errors import StoreError
from orchestrator.parts.schema.column import Column, ColumnType
from orchestrator.store.compact.catalogue import RUN_FOLDER
from orchestrator.store.compact.sources import Sources
from orchestrator.store.tabular import tables

if TYPE_CHECKING:
    import duckdb

SQL_TYPES: Mapping[ColumnType, str] = {"int64": "bigint", "float64": "double", "string": "varchar", "bool": "boolean"}
FOLDER = {RUN_FOLDER: Column("string", "the run's folder, from the store's")}
_READ = "union_by_name = true, hive_partitioning = false"


def of_files(
    connection: duckdb.DuckDBPyConnection, table: str, columns: Mapping[str, Column], found: Sources
) -> list[str]:
    """Selects that together give these columns of a table's rows, which lie where `found` says.

    Among the columns may be the run's folder (`FOLDER`). StoreError for files that cannot be read.
    """
    parts = compacted(connection, table, columns, found)
    if found.folders:
        before, after = f"{found.root}/", f"/tables/{table}.parquet"
        stored = f"read_parquet({_listed(of_folders(table, found))}, {_READ}"
        of_path = f"substr(filename, {len(before) + 1}, length(filename) - {len(before) + len(after)})"
        if RUN_FOLDER in columns:
            parts.append(_select(connection, columns, f"{stored}, filename = true)", {RUN_FOLDER: of_path}))
        else:
            parts.append(_select(connection, columns, f"{stored})"))
    return parts


def of_folders(table: str, found: Sources) -> list[str]:
    """The files of a table in run folders."""
    return [f"{found.root}/{folder}/tables/{table}.parquet" for folder in found.folders]


def compacted(
    connection: duckdb.DuckDBPyConnection, table: str, columns: Mapping[str, Column], found: Sources
) -> list[str]:
    """The same for rows in compacted files alone."""
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
    """A select of today's columns from files, some of which may be of an older version of the tables.

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
        values.append(f'{value}::{SQL_TYPES[column.type]} as "{name}"')
    return f"select {', '.join(values)} from {stored}"  # noqa: S608 - likewise


def nothing(columns: Mapping[str, Column]) -> str:
    """A select of these columns that gives no row."""
    nulls = ", ".join(f'null::{SQL_TYPES[column.type]} as "{name}"' for name, column in columns.items())
    return f"select {nulls} where false"


def _listed(files: Iterable[str]) -> str:
    """Files as a list of SQL's: each itself, no pattern."""
    return f"[{', '.join(quoted(as_pattern(file)) for file in files)}]"


def as_pattern(file: str) -> str:
    """A file's name as DuckDB takes it where it takes patterns: the file itself and no other."""
    return re.sub(r"([*?[])", r"[\1]", file)


def quoted(text: str) -> str:
    """A text as SQL has it."""
    return "'" + text.replace("'", "''") + "'"
