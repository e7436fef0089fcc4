"""The tables of many runs as one: DuckDB over their Parquet files, and `runs` and `windows` made from manifests."""

from __future__ import annotations

import json
import re
import stat
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import ConfigError, StoreError
from orchestrator.parts.rows import TABLES
from orchestrator.store import index, remote, tables
from orchestrator.store.records import WindowSummary
from orchestrator.store.rundir import PARTIAL, Listed

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

OF_MANIFESTS = ("runs", "windows")
NAMES = (*OF_MANIFESTS, *(name for name in TABLES if name not in OF_MANIFESTS))
FORMATS = ("csv", "parquet", "json")


def opened(results: str, entries: Sequence[Listed], mentioned: Iterable[str]) -> duckdb.DuckDBPyConnection:
    """A connection in which every mentioned table is there, over all sealed runs of `entries`."""
    import duckdb

    connection = duckdb.connect(":memory:")
    sealed = [entry for entry in entries if entry.sealed]
    wanted = [name for name in NAMES if name in set(mentioned)]
    files = {f"tables/{name}.parquet" for name in wanted if name not in OF_MANIFESTS}
    if files:
        remote.fetch(results, [entry.path for entry in sealed], want=files.__contains__)
    for name in wanted:
        if name in OF_MANIFESTS:
            rows = runs_table(entries) if name == "runs" else windows_table(sealed)
            connection.register(name, rows)
            continue
        paths = [entry.path / "tables" / f"{name}.parquet" for entry in sealed]
        there = [re.sub(r"([*?\[])", r"[\1]", str(path)) for path in paths if path.exists()]  # each itself, no pattern
        if there:
            _renamed(connection.read_parquet(there, union_by_name=True, hive_partitioning=False)).create_view(name)
        else:
            connection.register(name, tables.schema(name).empty_table())
    return connection


def _renamed(files: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """The rows of files, some of which may be of an older version of the tables, by the column names of today."""
    names: dict[str, list[str]] = {}
    for old, new in zip(files.columns, tables.renamed(files.columns), strict=True):
        names.setdefault(new, []).append(f'"{old}"')
    return files.project(", ".join(f'coalesce({", ".join(old)}) as "{new}"' for new, old in names.items()))


def asked(results: str, entries: Sequence[Listed], sql: str) -> pa.Table:
    """What a query gives, each column with a name of its own; ConfigError with DuckDB's words where it takes none."""
    import duckdb

    mentioned = set(re.findall(r"[a-z_]+", sql.lower()))
    with opened(results, entries, mentioned) as connection:
        try:
            found = connection.sql(sql)
            if found is None:
                raise ConfigError("the query gives nothing; accepted: a select")
            table = found.to_arrow_table()
            return table.rename_columns(_apart(table.column_names))
        except duckdb.Error as error:
            told = str(error)
            hint = f"tables are {', '.join(NAMES)}" if "does not exist" in told else None
            raise ConfigError(told, hint=hint) from None


def _apart(names: Sequence[str]) -> list[str]:
    """Names of columns, of which joined tables have some twice: the second `run` is `run_2`."""
    found: list[str] = []
    for name in names:
        other, number = name, 1
        while other in found or (number > 1 and other in names):
            number += 1
            other = f"{name}_{number}"
        found.append(other)
    return found


def runs_table(entries: Sequence[Listed]) -> pa.Table:
    """A row a run, unsealed ones too; rates and sizes elsewhere are as on the wire: `scale` multiplies them back."""
    import pyarrow as pa

    rows = []
    for entry in entries:
        manifest = entry.manifest
        job, sweep = next(iter(manifest.jobs), None), manifest.sweep
        rows.append(
            {
                "run": entry.run, "experiment": manifest.experiment, "outcome": entry.outcome, "valid": manifest.valid,
                "reasons": "\n".join(manifest.reasons), "stage": manifest.stage, "error": manifest.error,
                "began_ns": manifest.began_ns, "ended_ns": manifest.ended_ns, "point": manifest.point,
                "repetition": manifest.repetition, "seed": manifest.seed, "scale": manifest.scale,
                "workload": job.workload if job else None, "model": job.model if job else None,
                "ranks": len(job.ranks) if job else 0, "sweep": sweep.id if sweep else None,
                "sweep_name": sweep.name if sweep else None, "git": manifest.git.commit if manifest.git else None,
                "total_s": manifest.phases.get("total"), "overhead_s": manifest.overhead_s, "path": str(entry.path),
            }
        )  # fmt: skip
    return pa.Table.from_pylist(rows, schema=_schema(RUNS))


RUNS = {
    "run": "string", "experiment": "string", "outcome": "string", "valid": "bool", "reasons": "string",
    "stage": "string", "error": "string", "began_ns": "int64", "ended_ns": "int64", "point": "string",
    "repetition": "int64", "seed": "int64", "scale": "int64", "workload": "string", "model": "string",
    "ranks": "int64", "sweep": "string", "sweep_name": "string", "git": "string", "total_s": "float64",
    "overhead_s": "float64", "path": "string",
}  # fmt: skip
WINDOWS = {
    "run": "string", "experiment": "string", "window_name": "string", "start_ns": "int64", "end_ns": "int64",
    "valid": "bool", "reasons": "string", "scale": "int64", "requested_bps": "float64", "achieved_bps": "float64",
    "job": "string", "model": "string", "iterations": "int64", "mean_s": "float64", "p50_s": "float64",
    "p99_s": "float64", "sweep": "string", "sweep_name": "string", "sweep_point": "string", "repetition": "int64",
    "fresh": "bool", "values": "string",
}  # fmt: skip


def windows_table(entries: Sequence[Listed]) -> pa.Table:
    """A row a measured window and job; loads are at full size, all sources together; `values` of a sweep as JSON."""
    import pyarrow as pa

    rows = [row for entry in entries for window in entry.manifest.windows for row in _window(entry, window)]
    return pa.Table.from_pylist(rows, schema=_schema(WINDOWS))


def _window(entry: Listed, window: WindowSummary) -> list[dict[str, Any]]:
    manifest, scale = entry.manifest, float(entry.manifest.scale)
    models = {job.name: job.model for job in manifest.jobs}
    sweep, point = manifest.sweep, manifest.points.get(window.window)
    achieved = window.achieved_bps
    common = {
        "run": entry.run, "experiment": manifest.experiment, "window_name": window.window,
        "start_ns": window.start_ns, "end_ns": window.end_ns, "valid": window.valid,
        "reasons": "\n".join(window.reasons), "scale": manifest.scale,
        "requested_bps": window.requested_bps * scale, "achieved_bps": None if achieved is None else achieved * scale,
        "sweep": sweep.id if sweep else None, "sweep_name": sweep.name if sweep else None,
        "sweep_point": point.point if point else None,
        "repetition": point.repetition if point else manifest.repetition, "fresh": point is not None and point.fresh,
        "values": json.dumps(point.values) if point else None,
    }  # fmt: skip
    figures = ("iterations", "mean_s", "p50_s", "p99_s")
    if not window.training:
        return [{**common, "job": None, "model": None, **dict.fromkeys(figures)}]
    return [
        {**common, "job": row.job, "model": models.get(row.job), **{key: getattr(row, key) for key in figures}}
        for row in window.training
    ]


def _schema(columns: Mapping[str, str]) -> pa.Schema:
    import pyarrow as pa

    types = {"int64": pa.int64(), "float64": pa.float64(), "string": pa.string(), "bool": pa.bool_()}
    return pa.schema([(name, types[kind]) for name, kind in columns.items()])


def export(results: str, entries: Sequence[Listed], name: str, output: Path) -> int:
    """Write a table over runs to a file, as its name ends, also one that is larger than memory; gives its rows."""
    import duckdb

    if name not in NAMES:
        raise ConfigError(f"{name}: no such table; accepted: {', '.join(NAMES)}")
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
    found = index.entries(remote.here(results))
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
