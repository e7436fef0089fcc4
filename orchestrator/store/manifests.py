"""Tables that are made of manifests: `runs`, `windows` and `hosts`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.parts.schema.column import Column, Table
from orchestrator.store.rundir import Entry, entry_at

if TYPE_CHECKING:
    import pyarrow as pa

RUNS = Table(
    "a run, an unfinished one too",
    {
        "run": Column("string", "id of the run"),
        "experiment": Column("string", "name of the experiment"),
        "outcome": Column("string", "completed, failed, interrupted, running or lost"),
        "valid": Column("bool", "whether its figures count"),
        "reasons": Column("string", "why it is not valid, one a line"),
        "stage": Column("string", "the phase that it reached"),
        "error": Column("string", "what it failed with"),
        "began_ns": Column("int64", "begin"),
        "ended_ns": Column("int64", "end"),
        "point": Column("string", "digest of what was to be measured"),
        "repetition": Column("int64", "number of the repetition, from 1"),
        "seed": Column("int64", "seed of the run"),
        "scale": Column("int64", "multiplies rates and sizes of the other tables back to full size"),
        "workload": Column("string", "workload of the first job"),
        "model": Column("string", "model of the first job"),
        "ranks": Column("int64", "ranks of the first job"),
        "sweep": Column("string", "id of the sweep that it belongs to"),
        "sweep_name": Column("string", "name of that sweep"),
        "git": Column("string", "commit of orch"),
        "total_s": Column("float64", "from opening to sealing"),
        "overhead_s": Column("float64", "of that, outside of measured windows"),
        "path": Column("string", "folder of the run"),
    },
)
WINDOWS = Table(
    "a job in a measured window",
    {
        "run": Column("string", "id of the run"),
        "experiment": Column("string", "name of the experiment"),
        "window_name": Column("string", "name of the window"),
        "start_ns": Column("int64", "begin of its first measured iteration"),
        "end_ns": Column("int64", "end of its last measured iteration"),
        "valid": Column("bool", "whether its figures count"),
        "reasons": Column("string", "why it is not valid, one a line"),
        "scale": Column("int64", "scale of the run; loads of this table are at full size already"),
        "requested_bps": Column("float64", "cross traffic requested, all sources, layer 2, full size"),
        "achieved_bps": Column("float64", "cross traffic received, likewise; missing where not captured"),
        "job": Column("string", "name of the job"),
        "model": Column("string", "model of the job"),
        "iterations": Column("int64", "number of measured iterations"),
        "effective_iterations": Column("float64", "independent ones that would say as much of the mean"),
        "mean_s": Column("float64", "mean iteration time"),
        "mean_low_s": Column("float64", "lower end of its 95% interval, within the run"),
        "mean_high_s": Column("float64", "upper end"),
        "p50_s": Column("float64", "median iteration time"),
        "p50_low_s": Column("float64", "lower end of its 95% interval, within the run"),
        "p50_high_s": Column("float64", "upper end"),
        "p99_s": Column("float64", "99th percentile of the iteration time"),
        "p99_low_s": Column("float64", "lower end of its 95% interval, within the run"),
        "p99_high_s": Column("float64", "upper end"),
        "sweep": Column("string", "id of the sweep that it belongs to"),
        "sweep_name": Column("string", "name of that sweep"),
        "sweep_point": Column("string", "id of the sweep's point"),
        "repetition": Column("int64", "number of the repetition, from 1"),
        "recheck": Column("bool", "whether it checks a point in a run of its own"),
        "axis_values": Column("string", "values of the sweep's axes, as JSON"),
    },
)
HOSTS = Table(
    "a host or switch of a run",
    {
        "run": Column("string", "id of the run"),
        "host": Column("string", "its name"),
        "kind": Column("string", "host or switch"),
        "address": Column("string", "address in the data plane; empty for a switch"),
        "device": Column("string", "network device of the data plane"),
    },
)
_FIGURES = (
    "iterations",
    "effective_iterations",
    *(f"{figure}{end}_s" for figure in ("mean", "p50", "p99") for end in ("", "_low", "_high")),
)


def arrow_schema(columns: Mapping[str, Column]) -> pa.Schema:
    """Columns as Arrow has them."""
    import pyarrow as pa

    types = {"int64": pa.int64(), "float64": pa.float64(), "string": pa.string(), "bool": pa.bool_()}
    return pa.schema([(name, types[column.type]) for name, column in columns.items()])


def arrow_table(rows: Sequence[Mapping[str, Any]], table: Table) -> pa.Table:
    """Rows as Arrow has them; a whole number where a table has others becomes one, which may round it."""
    import pyarrow as pa

    floats = [name for name, column in table.columns.items() if column.type == "float64"]
    whole = [{**row, **{name: float(row[name]) for name in floats if isinstance(row[name], int)}} for row in rows]
    return pa.Table.from_pylist(whole, schema=arrow_schema(table.columns))


def runs_table(entries: Sequence[Entry]) -> pa.Table:
    """A row a run, unsealed ones too; rates and sizes elsewhere are as on the wire: `scale` multiplies them back."""
    rows = []
    for entry in entries:
        manifest = entry.manifest
        job: Mapping[str, Any] = next(iter(manifest.get("jobs", [])), {})
        sweep = manifest.get("sweep", {})
        rows.append(
            {
                "run": entry.run, "experiment": manifest["experiment"], "outcome": entry.outcome,
                "valid": bool(manifest.get("valid")), "reasons": "\n".join(manifest.get("reasons", [])),
                "stage": manifest.get("stage"), "error": manifest.get("error"), "began_ns": manifest.get("began_ns"),
                "ended_ns": manifest.get("ended_ns"), "point": manifest.get("point"),
                "repetition": manifest.get("repetition"), "seed": manifest.get("seed"), "scale": manifest.get("scale"),
                "workload": job.get("workload"), "model": job.get("model"), "ranks": len(job.get("ranks", [])),
                "sweep": sweep.get("id"), "sweep_name": sweep.get("name"),
                "git": (manifest.get("git") or {}).get("commit"),
                "total_s": manifest.get("phases", {}).get("total"), "overhead_s": manifest.get("overhead_s"),
                "path": str(entry.path),
            }
        )  # fmt: skip
    return arrow_table(rows, RUNS)


def windows_table(entries: Sequence[Entry]) -> pa.Table:
    """A row a measured window and job; loads are at full size, all sources together."""
    rows = [row for entry in entries for window in entry.manifest.get("windows", []) for row in _window(entry, window)]
    return arrow_table(rows, WINDOWS)


def _window(entry: Entry, window: Mapping[str, Any]) -> list[dict[str, Any]]:
    manifest = entry.manifest
    scale = manifest.get("scale", 1)
    models = {job["name"]: job.get("model") for job in manifest.get("jobs", [])}
    sweep = manifest.get("sweep", {})
    planned = sweep.get("points", {}).get(window["window"], {})
    rates = [load["achieved_bps"] for load in window["loads"]]
    common = {
        "run": entry.run, "experiment": manifest["experiment"], "window_name": window["window"],
        "start_ns": window["start_ns"], "end_ns": window["end_ns"], "valid": bool(window["valid"]),
        "reasons": "\n".join(window["reasons"]), "scale": scale,
        "requested_bps": sum(load["requested_bps"] for load in window["loads"]) * float(scale),
        "achieved_bps": None if None in rates else sum(rates) * float(scale),
        "sweep": sweep.get("id"), "sweep_name": sweep.get("name"), "sweep_point": planned.get("point"),
        "repetition": planned.get("repetition", manifest.get("repetition")), "recheck": planned.get("fresh", False),
        "axis_values": json.dumps(planned["values"]) if planned else None,
    }  # fmt: skip
    jobs = window["training"] or [{}]
    return [
        {
            **common,
            "job": row.get("job"),
            "model": models.get(row.get("job")),
            **{key: row.get(key) for key in _FIGURES},
        }
        for row in jobs
    ]


def hosts_table(entries: Sequence[Entry]) -> pa.Table:
    """A row a node of each run's testbed, which only the whole manifest has."""
    rows = [
        {
            "run": entry.run,
            "host": node["name"],
            "kind": node.get("kind", "host"),
            "address": node.get("address", ""),
            "device": node.get("device", ""),
        }
        for entry in filter(None, (entry_at(one.path) for one in entries))
        for node in entry.manifest.get("topology", {}).get("nodes", [])
    ]
    return arrow_table(rows, HOSTS)
