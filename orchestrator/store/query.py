"""The tables of many runs as one: DuckDB over their Parquet files and manifests, with views of `views`."""

from __future__ import annotations

import re
import stat
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.core.errors import ConfigError, StoreError
from orchestrator.parts.schema.column import Table
from orchestrator.store import index, manifest_tables, remote, tables, views
from orchestrator.store.rundir import PARTIAL, Listed

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

OF_MANIFESTS: Mapping[str, tuple[Table, Callable[[Sequence[Listed]], pa.Table]]] = {
    "runs": (manifest_tables.RUNS, manifest_tables.runs_table),
    "windows": (manifest_tables.WINDOWS, manifest_tables.windows_table),
    "hosts": (manifest_tables.HOSTS, manifest_tables.hosts_table),
}
FORMATS = ("csv", "parquet", "json")
_SQL_TYPES = {"int64": "bigint", "double": "double", "string": "varchar", "bool": "boolean"}  # by those of pyarrow


def opened(results: str, entries: Sequence[Listed], mentioned: Iterable[str]) -> duckdb.DuckDBPyConnection:
    """A connection with every table and view: those that are mentioned with the rows of `entries`, others empty.

    Of unsealed runs there is a row in `runs`, and nothing else.
    """
    import duckdb

    connection = duckdb.connect(":memory:")
    wanted = views.needed(mentioned)
    sealed = [entry for entry in entries if entry.sealed]
    files = {f"tables/{views.file_of(name)}.parquet" for name in wanted if name in views.OF_FILES}
    if files:
        remote.fetch(results, [entry.path for entry in sealed], want=files.__contains__)
    for name, (_, rows) in OF_MANIFESTS.items():
        connection.register(name, rows((entries if name == "runs" else sealed) if name in wanted else []))
    for name in views.OF_FILES:
        paths = [entry.path / "tables" / f"{views.file_of(name)}.parquet" for entry in sealed if name in wanted]
        there = [re.sub(r"([*?\[])", r"[\1]", str(path)) for path in paths if path.exists()]  # each itself, no pattern
        if there:
            stored = connection.read_parquet(there, union_by_name=True, hive_partitioning=False)
            _current(views.file_of(name), stored).create_view(name)
        else:
            connection.register(name, tables.schema(views.file_of(name)).empty_table())
    for name, view in views.VIEWS.items():
        connection.execute(f"create view {name} as {view.sql}")
    return connection


def _current(name: str, files: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """The rows of a table's files, some of which may be of an older version, in the columns of today."""
    older = {new: old for old, new in tables.RENAMED.items()}
    there = set(files.columns)
    columns = []
    for field in tables.schema(name):
        found = [f'"{known}"' for known in (field.name, older.get(field.name)) if known in there]
        columns.append(f'coalesce({", ".join([*found, "null"])})::{_SQL_TYPES[str(field.type)]} as "{field.name}"')
    return files.project(", ".join(columns))


def select(results: str, entries: Sequence[Listed], sql: str) -> pa.Table:
    """What a query gives, each column with a name of its own; ConfigError with DuckDB's words where it takes none."""
    import duckdb

    mentioned = set(re.findall(r"[a-z_]+", sql.lower()))
    with opened(results, entries, mentioned) as connection:
        try:
            found = connection.sql(sql)
            if found is None:
                raise ConfigError(
                    "the statement gives no rows; accepted: select, show tables, describe TABLE, summarize TABLE"
                )
            table = found.to_arrow_table()
            return table.rename_columns(_apart(table.column_names))
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


def export(results: str, entries: Sequence[Listed], name: str, output: Path) -> int:
    """Write a table over runs to a file, as its name ends, also one that is larger than memory; gives its rows."""
    import duckdb

    if name not in names():
        raise ConfigError(f"{name}: no such table; accepted: {', '.join(names())}")
    kind = output.suffix.removeprefix(".")
    if kind not in FORMATS:
        raise ConfigError(f"{output}: accepted: a name that ends in one of {', '.join('.' + each for each in FORMATS)}")
    new = output.with_name(f".{output.name}.new")
    with opened(results, entries, [name]) as connection:
        options = {"csv": "format csv, header", "parquet": "format parquet, compression zstd", "json": "format json"}
        try:
            connection.execute(f"copy {name} to '{str(new).replace(chr(39), chr(39) * 2)}' ({options[kind]})")
            ((rows,),) = connection.execute(f"select count(*) from {name}").fetchall()  # noqa: S608 - of our own names
            new.replace(output)
        except (duckdb.Error, OSError) as error:
            raise StoreError(f"{output}: cannot be written: {error}") from None
    return int(rows)


def zipped(results: str, entry: Listed, output: Path) -> int:
    """Write a sealed run with all its files as one zip; gives the number of files."""
    if not entry.sealed:
        raise StoreError(f"{entry.run} is not sealed", hint="orch recover")
    remote.fetch(results, [entry.path], want=lambda _: True)
    new = output.with_name(f".{output.name}.new")
    files = sorted(path for path in entry.path.rglob("*") if stat.S_ISREG(path.lstat().st_mode))  # no link is followed
    try:
        with zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as archive:
            for file in files:
                archive.write(file, f"{entry.run}/{file.relative_to(entry.path)}")
        new.replace(output)
    except OSError as error:
        raise StoreError(f"{output}: cannot be written: {error.strerror}") from None
    return len(files)


def chosen(results: str, runs: Sequence[str]) -> list[Listed]:
    """All runs of a store, or those that are named by id, part of one, or `last`."""
    found = index.entries(remote.mirrored(results))
    if not runs:
        return found
    picked = []
    for wanted in runs:
        hits = [entry for entry in found if _is_meant(entry, wanted)]
        hits = [max(found, key=lambda entry: entry.run)] if wanted == "last" and found else hits
        if not hits:
            raise StoreError(f"{wanted}: no such run in {results}", hint="orch ls")
        picked += hits
    return picked


def _is_meant(entry: Listed, wanted: str) -> bool:
    folder = Path(wanted).name.removesuffix(PARTIAL)
    return bool(folder) and (entry.run.startswith(folder) or entry.run.endswith(folder))
