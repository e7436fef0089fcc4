"""The commands `orch query`, `orch tables` and `orch export`: results as tables, by SQL and in files."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.cli import options
from orchestrator.cli.commands import Group
from orchestrator.core.screen import layout, terminal

if TYPE_CHECKING:
    from orchestrator.store.query import Answer

_TRACES = ("chakra", "kineto")
_TRACKING = "mlflow"


def register(group: Group) -> None:
    """Add `orch query` and `orch tables`."""
    query = group.add(
        "query",
        "query the tables of all runs in SQL (DuckDB)",
        action=_query,
        example='orch query "select experiment, avg(mean_s) from windows where valid group by 1"',
    )
    options.results_to_read(query)
    options.filters(query)
    query.add_argument(
        "sql",
        metavar="SQL",
        help="a select over runs, windows, iterations, ... (see orch tables); also show tables, describe TABLE, "
        "summarize TABLE",
    )
    query.add_argument(
        "--unrestricted",
        action="store_true",
        help="carry out any SQL, several statements too: it may read and write all files that you may, and load "
        "extensions (default: one statement that reads the tables and nothing else)",
    )
    form = query.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="print CSV")
    form.add_argument("--json", action="store_true", help="print one JSON object a line")

    tables = group.add(
        "tables",
        "list the tables that queries see, or the columns of one",
        action=_tables,
        example="orch tables iterations",
    )
    tables.add_argument(
        "table", metavar="TABLE", nargs="?", help="print the columns of this table (default: all tables)"
    )
    tables.add_argument("--markdown", action="store_true", help="print all tables and columns as Markdown")


def register_export(group: Group) -> None:
    """Add `orch export`."""
    export = group.add(
        "export",
        "write a table over many runs to a file, or one run as a zip file, as traces for other tools or to MLflow",
        action=_export,
        example="orch export iterations --experiment quickstart -o iterations.parquet",
    )
    options.results_to_read(export)
    options.filters(export)
    export.add_argument(
        "what",
        metavar="WHAT",
        help="a table (see orch tables); `zip`; `chakra`, execution traces of MLCommons' schema, or `kineto`, JSON for "
        "HolisticTraceAnalysis: what each rank computed and communicated; `mlflow`, the run with its settings, "
        "iterations and windows as a run of MLflow",
    )
    export.add_argument("runs", metavar="RUN", nargs="*", help=f"only of these (default: all): {options.RUNS}")
    export.add_argument(
        "-o",
        "--output",
        type=_address,
        required=True,
        metavar="FILE",
        help="FILE.csv, FILE.parquet or FILE.json; of `zip`, FILE.zip; of `chakra` and `kineto` a folder; of `mlflow` "
        "its tracking address, such as http://HOST:5000",
    )


def _query(arguments: argparse.Namespace) -> int:
    from orchestrator.store import query, stores

    store = stores.opened(arguments.results)
    picked = stores.picked(store, [], options.filter_of(arguments))
    found = query.select(store, picked, arguments.sql, unrestricted=arguments.unrestricted)
    if arguments.csv:
        _print_csv(found)
    elif arguments.json:
        _print_json(found)
    else:
        _print_text(found)
    return 0


def _tables(arguments: argparse.Namespace) -> int:
    from orchestrator.store import query

    if arguments.markdown:
        print(query.tables_page(), end="")
    elif arguments.table:
        print(query.table_text(arguments.table, layout.columns()))
    else:
        print(query.tables_text(layout.columns()))
    return 0


def _print_csv(found: Answer) -> None:
    import csv

    plain = terminal.plain(sys.stdout)
    writer = csv.writer(sys.stdout if plain.isatty() else plain, lineterminator="\n")
    writer.writerow(found.columns)
    writer.writerows(found.rows)


def _print_json(found: Answer) -> None:
    import json

    for row in found.rows:
        print(json.dumps(dict(zip(found.columns, row, strict=True)), default=str))


def _print_text(found: Answer) -> None:
    rows = [["" if value is None else _cell(value) for value in row] for row in found.rows]
    print(layout.table(found.columns, rows))


def _cell(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _address(text: str) -> Path | str:
    """Return an address as it is, and everything else as the path of a file or folder."""
    return text if "://" in text else Path(text)


def _export(arguments: argparse.Namespace) -> int:
    from orchestrator.core.errors import ConfigError
    from orchestrator.store import listing, query, rundir, stores
    from orchestrator.store.manifests import stayed

    if isinstance(arguments.output, str) and arguments.what != _TRACKING:
        raise ConfigError(
            f"-o {arguments.output}: not on this machine; accepted: a path, or an address for {_TRACKING}"
        )
    store = stores.opened(arguments.results)
    if arguments.what not in ("zip", _TRACKING, *_TRACES):
        picked = stores.picked(store, arguments.runs, options.filter_of(arguments))
        rows = query.export(store, picked, arguments.what, Path(arguments.output))
        print(f"{arguments.output}: {rows} rows of {len(picked.sealed) + len(picked.unsealed)} runs")
        return 0
    entries = listing.select(stores.named(store, arguments.runs), options.filter_of(arguments))
    if len(entries) != 1:
        raise ConfigError(f"{arguments.what}: {len(entries)} runs are selected; accepted: one")
    if arguments.what in _TRACES:
        return _export_traces(arguments, store.brought(entries[0]))
    if arguments.what == _TRACKING:
        return _export_to_mlflow(arguments, store.brought(entries[0]))
    count = query.zipped(store, entries[0], Path(arguments.output))
    print(f"{arguments.output}: {count} files of {entries[0].run}")
    for line in stayed.where(rundir.opened(store.brought(entries[0])).manifest):
        print(f"captures that stay on {line}: they are not in it")
    return 0


def _export_traces(arguments: argparse.Namespace, run: Path) -> int:
    from orchestrator.report.runs import Run
    from orchestrator.report.traces import chakra, kineto

    written = {"chakra": chakra.write, "kineto": kineto.write}[arguments.what](Run(run), Path(arguments.output))
    print(f"{arguments.output}: traces of {len(written)} ranks")
    return 0


def _export_to_mlflow(arguments: argparse.Namespace, run: Path) -> int:
    from orchestrator.report.runs import Run
    from orchestrator.report.traces import tracking

    print(f"{arguments.output}: run {tracking.log(Run(run), str(arguments.output))}")
    return 0
