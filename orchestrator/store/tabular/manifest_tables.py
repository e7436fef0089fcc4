"""Tables that are made of manifests: `runs`, `windows` and `hosts`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from orchestrator.parts.rows import Row
from orchestrator.parts.schema.column import Column, Table

if TYPE_CHECKING:
    import pyarrow as pa

    from orchestrator.store.manifests.summaries import WindowSummary
    from orchestrator.store.rundir import Listed

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
        "salt": Column("string", "of its random numbers, which `--seed` with it repeats; missing in older runs"),
        "seed": Column("int64", "from which those of its jobs are derived"),
        "scale": Column("int64", "multiplies rates and sizes of the other tables back to full size"),
        "dilation": Column("int64", "by which durations of the run were multiplied; tables have them divided back"),
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
    "a host or switch of a run, and each rail of a host",
    {
        "run": Column("string", "id of the run"),
        "host": Column("string", "its name"),
        "kind": Column("string", "host or switch"),
        "rail": Column("int64", "number of the rail, from 0"),
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


def arrow_table(rows: Sequence[Row], table: Table) -> pa.Table:
    """Rows as Arrow has them; a whole number where a table has others becomes one, which may round it."""
    import pyarrow as pa

    floats = [name for name, column in table.columns.items() if column.type == "float64"]
    whole = [{**row, **{name: float(row[name]) for name in floats if isinstance(row[name], int)}} for row in rows]
    return pa.Table.from_pylist(whole, schema=arrow_schema(table.columns))


def runs_table(entries: Sequence[Listed]) -> pa.Table:
    """Return a table with a row for each run, unsealed ones too.

    Rates and sizes elsewhere are as on the wire: `scale` multiplies them back.
    """
    rows = []
    for entry in entries:
        manifest = entry.manifest
        job, sweep = next(iter(manifest.jobs), None), manifest.sweep
        rows.append(
            {
                "run": entry.run,
                "experiment": manifest.experiment,
                "outcome": entry.outcome,
                "valid": manifest.valid,
                "reasons": "\n".join(manifest.reasons),
                "stage": manifest.stage,
                "error": manifest.error,
                "began_ns": manifest.began_ns,
                "ended_ns": manifest.ended_ns,
                "point": manifest.point,
                "repetition": manifest.repetition,
                "salt": manifest.salt,
                "seed": manifest.seed,
                "scale": manifest.scale,
                "dilation": manifest.dilation,
                "workload": job.workload if job else None,
                "model": job.model if job else None,
                "ranks": len(job.ranks) if job else 0,
                "sweep": sweep.id if sweep else None,
                "sweep_name": sweep.name if sweep else None,
                "git": manifest.git.commit if manifest.git else None,
                "total_s": manifest.phases.get("total"),
                "overhead_s": manifest.overhead_s,
                "path": str(entry.path),
            }
        )
    return arrow_table(rows, RUNS)


def windows_table(entries: Sequence[Listed]) -> pa.Table:
    """Return a table with a row for each measured window and job; loads are at full size, all sources together."""
    rows = [row for entry in entries for window in entry.manifest.windows for row in _window(entry, window)]
    return arrow_table(rows, WINDOWS)


def _window(entry: Listed, window: WindowSummary) -> list[Row]:
    manifest, scale = entry.manifest, float(entry.manifest.scale)
    models = {job.name: job.model for job in manifest.jobs}
    sweep, point = manifest.sweep, manifest.points.get(window.name)
    achieved = window.achieved_bps
    common = {
        "run": entry.run,
        "experiment": manifest.experiment,
        "window_name": window.name,
        "start_ns": window.start_ns,
        "end_ns": window.end_ns,
        "valid": window.valid,
        "reasons": "\n".join(window.reasons),
        "scale": manifest.scale,
        "requested_bps": window.requested_bps * scale,
        "achieved_bps": None if achieved is None else achieved * scale,
        "sweep": sweep.id if sweep else None,
        "sweep_name": sweep.name if sweep else None,
        "sweep_point": point.point if point else None,
        "repetition": point.repetition if point else manifest.repetition,
        "recheck": point is not None and point.recheck,
        "axis_values": json.dumps(point.values) if point else None,
    }
    if not window.training:
        return [{**common, "job": None, "model": None, **dict.fromkeys(_FIGURES)}]
    return [
        {**common, "job": row.job, "model": models.get(row.job), **{key: getattr(row, key) for key in _FIGURES}}
        for row in window.training
    ]


def hosts_table(entries: Sequence[Listed]) -> pa.Table:
    """Return a row a rail of each node of each run's testbed, which only the whole manifest has.

    A switch has one row.
    """
    from orchestrator.parts.topology import Rail
    from orchestrator.store.rundir import entry_at

    rows = [
        {
            "run": entry.run,
            "host": node.name,
            "kind": node.kind,
            "rail": number,
            "address": rail.address,
            "device": rail.device,
        }
        for entry in filter(None, (entry_at(one.path) for one in entries))
        for node in entry.manifest.topology.nodes
        for number, rail in enumerate(node.rails or (Rail(),))
    ]
    return arrow_table(rows, HOSTS)
