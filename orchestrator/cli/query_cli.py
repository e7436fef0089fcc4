"""The commands `orch query` and `orch export`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from orchestrator.core import terminal
from orchestrator.store import listing


def query_options(parser: argparse.ArgumentParser) -> None:
    """Add what `orch query` takes."""
    listing.options(parser)
    parser.add_argument("sql", metavar="SQL", help="a select over runs, windows, iterations, flows, loads, ...")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="as CSV")
    form.add_argument("--json", action="store_true", help="as JSON, one object a line")
    parser.set_defaults(action=_query)


def export_options(parser: argparse.ArgumentParser) -> None:
    """Add what `orch export` takes."""
    listing.options(parser)
    parser.add_argument("what", metavar="WHAT", help="a table (runs, windows, iterations, flows, ...), or `zip`")
    parser.add_argument("runs", metavar="RUN", nargs="*", help="of these runs; default: of all")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE",
                        help="FILE.csv, FILE.parquet or FILE.json; of `zip`, FILE.zip")  # fmt: skip

    parser.set_defaults(action=_export)


def _query(arguments: argparse.Namespace) -> int:
    from orchestrator.store import query

    entries = listing.select(query.chosen(arguments.results, []), listing.asked(arguments))
    found = query.asked(arguments.results, entries, arguments.sql)
    if arguments.csv:
        _print_csv(found)
    elif arguments.json:
        _print_json(found)
    else:
        _print_text(found)
    return 0


def _print_csv(found: Any) -> None:
    import csv

    plain = terminal.plain(sys.stdout)
    writer = csv.writer(sys.stdout if plain.isatty() else plain, lineterminator="\n")
    writer.writerow(found.column_names)
    for batch in found.to_batches():
        writer.writerows(zip(*(column.to_pylist() for column in batch.columns), strict=True))


def _print_json(found: Any) -> None:
    import json

    for batch in found.to_batches():
        for row in batch.to_pylist():
            print(json.dumps(row, default=str))


def _print_text(found: Any) -> None:
    from orchestrator.experiment import describe

    rows = [["" if value is None else _cell(value) for value in row.values()] for row in found.to_pylist()]
    print(describe.table(found.column_names, rows))


def _cell(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _export(arguments: argparse.Namespace) -> int:
    from orchestrator.core.errors import ConfigError
    from orchestrator.store import query

    entries = listing.select(query.chosen(arguments.results, arguments.runs), listing.asked(arguments))
    if arguments.what == "zip":
        if len(entries) != 1:
            raise ConfigError(f"zip: {len(entries)} runs are meant; accepted: one")
        count = query.zipped(arguments.results, entries[0], arguments.output)
        print(f"{arguments.output}: {count} files of {entries[0].run}")
        return 0
    rows = query.export(arguments.results, entries, arguments.what, arguments.output)
    print(f"{arguments.output}: {rows} rows of {len(entries)} runs")
    return 0
