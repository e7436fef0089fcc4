"""Write and read the tables of a run: one typed Parquet file a table, with the columns of `parts/schema`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import StoreError
from orchestrator.parts.rows import DESCRIBED, TABLES, Columns
from orchestrator.parts.schema.column import Column
from orchestrator.store import digests
from orchestrator.store.stamps import MANIFEST, PARTIAL

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

# What the controller works out for a run as a whole; every other table holds what launches brought home.
OF_THE_RUN = frozenset(
    {
        *("windows", "loads", "generated", "training", "variation", "one_way", "rails", "congestion", "switch_ports"),
        *("carried", "causes", "parts", "fabric_links", "collisions"),
    }
)
# Of the columns' names, kept in the metadata of each file as `orch.tables`; a file without it is of version 1. Readers
# and queries see the names of today, whatever the version of a file.
VERSION = 2
RENAMED = {"window": "window_name", "asked_s": "requested_s", "kept_share": "others_wait_share"}  # of version 1
_FRONT = {
    "run": Column("string", "id of the run"),
    "node": Column("string", "node that it is from"),
    "launch": Column("string", "process that it is from"),
}
_ROWS_PER_GROUP = 1 << 18


def key_columns(name: str) -> Mapping[str, Column]:
    """Return the columns that the store puts in front of those of a table."""
    return _FRONT if name not in OF_THE_RUN else {"run": _FRONT["run"]}


def schema(name: str) -> pa.Schema:
    """Return the columns of a table's file: `run`, then `node` and `launch` unless it is one of the run as a whole."""
    import pyarrow as pa

    if name not in TABLES:
        raise StoreError(f"there is no table {name!r}", hint="tables are " + ", ".join(TABLES))
    types = {"int64": pa.int64(), "float64": pa.float64(), "string": pa.string(), "bool": pa.bool_()}
    fields = [pa.field(column, pa.string()) for column in key_columns(name)]
    fields += [pa.field(column, types[kind]) for column, kind in TABLES[name].items()]
    return pa.schema(fields, metadata={"orch.tables": str(VERSION)})


def encodings(columns: pa.Schema) -> dict[str, Any]:
    """Return how these columns are encoded in Parquet files, as options of `ParquetWriter`.

    Text repeats itself, so it has a dictionary. Whole numbers are written as differences in few bits
    (DELTA_BINARY_PACKED of Parquet): a dictionary of them takes several times as long to write and to read.
    """
    import pyarrow as pa

    return {
        "use_dictionary": text_columns(columns),
        "column_encoding": {field.name: "DELTA_BINARY_PACKED" for field in columns if pa.types.is_int64(field.type)},
    }


def write(
    folder: Path, name: str, columns: Columns, *, run: str, node: str | None = None, launch: str | None = None
) -> Path:
    """Write a table that has one origin; returns the file. Several origins in one table need a TableWriter."""
    with TableWriter(folder, run=run) as writer:
        writer.add(name, columns, node=node, launch=launch)
    return folder / f"{name}.parquet"


def read(folder: Path, name: str, *, where: Any = None) -> pa.Table:
    """Return a table of a run; one that was never written is empty, with its columns.

    A file of an older version has its columns by today's names too, and those that it lacks are missing in each row.
    StoreError where it is damaged, or not what was sealed.
    `where` is a filter of pyarrow's (an expression); rows that it leaves out are never in memory all at once.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder / f"{name}.parquet"
    expected = schema(name)
    if not path.exists():
        return expected.empty_table()
    if not path.is_file():
        raise StoreError(f"cannot read {path}: it is no file")
    _check(path)
    try:
        if pq.read_schema(path).names == expected.names:
            return pq.read_table(path, partitioning=None, filters=where)
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path, error) from error
    kept = (rows if where is None else rows.filter(where) for rows in groups(folder, name))
    return pa.concat_tables([expected.empty_table(), *kept])


def coded(columns: pa.Schema) -> pa.Schema:
    """Return the same columns with text as places in a dictionary, as Parquet files have it.

    Text that stays so from one file to another is neither built in memory nor looked up anew: that takes longer than
    all else.
    """
    import pyarrow as pa

    text = pa.dictionary(pa.int32(), pa.string())
    fields = [field.with_type(text) if pa.types.is_string(field.type) else field for field in columns]
    return pa.schema(fields, metadata=columns.metadata)


def text_columns(columns: pa.Schema) -> list[str]:
    """Return the names of the columns that hold text."""
    import pyarrow as pa

    return [field.name for field in columns if pa.types.is_string(field.type)]


def groups(folder: Path, name: str, *, as_coded: bool = False) -> Iterator[pa.Table]:
    """Give the row groups of a table's file in the columns of today, one after the other; `as_coded`, as `coded` says.

    StoreError for a damaged file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path, expected = folder / f"{name}.parquet", schema(name)
    _check(path)
    names = set(text_columns(expected)) if as_coded else set()
    expected = coded(expected) if as_coded else expected
    try:
        about = pq.read_metadata(path)
        text = [column for column in about.schema.names if RENAMED.get(column, column) in names]
        with pq.ParquetFile(path, metadata=about, read_dictionary=text) as file:
            for group in range(file.num_row_groups):
                yield _current(file.read_row_group(group), expected)
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path, error) from error


def _check(path: Path) -> None:
    """StoreError for a table of a sealed run that is not what was sealed."""
    run = path.parent.parent
    if (run / MANIFEST).exists() and not run.name.endswith(PARTIAL):
        digests.check_tables(run.parent.parent, [f"{run.parent.name}/{run.name}/{path.parent.name}/{path.name}"])


def _unreadable(path: Path, error: Exception) -> StoreError:
    return StoreError(f"cannot read {path}: {error}", hint="was the results folder copied whole?")


def _current(rows: pa.Table, expected: pa.Schema) -> pa.Table:
    """Rows of an older version in the columns of today."""
    import pyarrow as pa

    older = {new: old for old, new in RENAMED.items() if old in rows.column_names}
    found = {name: older.get(name, name) for name in expected.names}
    columns = [
        rows[found[field.name]] if found[field.name] in rows.column_names else pa.nulls(rows.num_rows, field.type)
        for field in expected
    ]
    return pa.Table.from_arrays(columns, schema=expected)


class TableWriter:
    """Collects rows from many launches and writes one file a table; a context manager, whole once it has closed.

    Rows are held back until there is a row group's worth of them, so that many small outputs make few row groups and a
    big one does not stay in memory.
    """

    def __init__(self, folder: Path, *, run: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._run = run
        self._pending: dict[str, list[pa.Table]] = {}
        self._files: dict[str, pq.ParquetWriter] = {}

    def add(self, name: str, columns: Columns, *, node: str | None = None, launch: str | None = None) -> None:
        """Append rows: columns of the table, of equal length; None is a missing value, as is all of a column left out.

        `node` and `launch` say who brought them home; tables of the run as a whole take neither. StoreError when a
        required column is left out, and when one is unknown, too short or of another type.
        """
        self.append(name, batch(name, columns, run=self._run, node=node, launch=launch))

    def append(self, name: str, rows: pa.Table) -> None:
        """Append rows as `batch` gives them."""
        waiting = self._pending.setdefault(name, [])
        waiting.append(rows)
        if sum(part.num_rows for part in waiting) >= _ROWS_PER_GROUP:
            self._flush(name)

    def keep(self, name: str, rows: pa.Table) -> None:
        """Append rows as `read` and `groups` give them."""
        if rows.num_rows:
            self._pending.setdefault(name, []).append(rows.cast(schema(name)))
            self._flush(name)

    def close(self) -> None:
        """Write what is held back and close the files; a second call does nothing."""
        for name in list(self._pending):
            self._flush(name)
        for file in self._files.values():
            file.close()
        self._files.clear()

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _flush(self, name: str) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if name not in self._files:
            path = self._folder / f"{name}.parquet"
            self._files[name] = pq.ParquetWriter(path, schema(name), compression="zstd", **encodings(schema(name)))
        self._files[name].write_table(pa.concat_tables(self._pending.pop(name)))


def batch(name: str, columns: Columns, *, run: str, node: str | None = None, launch: str | None = None) -> pa.Table:
    """Return rows of a table in memory, as TableWriter adds them; StoreError as there."""
    import pyarrow as pa

    front = {"run": run, "node": node, "launch": launch}
    target = schema(name)
    wrong = [f"lacks {column}" for column in DESCRIBED[name].required if column not in columns]
    if unknown := [column for column in columns if column not in TABLES[name]]:
        wrong += [f"has the unknown {column}" for column in unknown]
        wrong.append(f"its columns are {', '.join(TABLES[name])}")
    if name in OF_THE_RUN and (front["node"] is not None or front["launch"] is not None):
        wrong.append("is of the run as a whole and takes no node or launch")
    lengths = {column: len(values) for column, values in columns.items()}
    if len(set(lengths.values())) > 1:
        wrong.append("has columns of unequal length: " + ", ".join(f"{key} {size}" for key, size in lengths.items()))
    if wrong:
        raise StoreError(f"table {name} " + "; ".join(wrong))
    rows = next(iter(lengths.values()))
    arrays = []
    for field in target:
        if field.name in columns:
            arrays.append(_array(name, field, columns[field.name]))
        else:
            arrays.append(pa.array([front.get(field.name)] * rows, type=field.type))
    return pa.Table.from_arrays(arrays, schema=target)


def _array(name: str, field: pa.Field, values: Any) -> pa.Array:
    import pyarrow as pa

    try:
        if field.type == pa.int64():
            # Asked for integers outright, pyarrow would cut the fraction off a float without a word.
            found = pa.array(values)
            if not any(is_kind(found.type) for is_kind in (pa.types.is_string, pa.types.is_boolean)):
                return found.cast(pa.int64())
        return pa.array(values, type=field.type)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise StoreError(f"table {name}: column {field.name} is not {field.type}: {error}") from error
