"""The tables that queries see, in words: what a row of each is, and its columns with units."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.core.errors import ConfigError
from orchestrator.core.screen import layout
from orchestrator.parts.schema.column import Table, unit
from orchestrator.store.queries import query
from orchestrator.store.tabular import views


def described(name: str) -> Table:
    """Rows and columns of a table or a view; ConfigError for a name that is none."""
    if name in query.OF_MANIFESTS:
        return query.OF_MANIFESTS[name][0]
    if name not in views.NAMES:
        raise ConfigError(f"{name}: no such table; accepted: {', '.join(query.names())}")
    return views.described(name)


def kind_of(name: str) -> str:
    """Where the rows of a table come from."""
    return "manifests" if name in query.OF_MANIFESTS else "view" if name in views.VIEWS else "files"


def tables_text(width: int | None) -> str:
    """A line for every table."""
    most = max(map(len, query.names()))
    return "\n".join(
        layout.hanging(f"a row: {described(name).row}", width, indent=f"{name:<{most}}  ") for name in query.names()
    )


def table_text(name: str, width: int | None) -> str:
    """One table with its columns."""
    table = described(name)
    cells = list(_cells(table))
    widths = [max(len(row[place]) for row in cells) for place in (0, 1)]
    lines = [layout.hanging(f"{name}: a row is {table.row}", width, rest="  "), ""]
    for column, kind, in_unit, text in cells:
        start = f"{column:<{widths[0]}}  {kind:<{widths[1]}}  "
        lines.append(layout.hanging(text + (f" ({in_unit})" if in_unit else ""), width, indent=start).rstrip())
    return "\n".join(lines)


def _cells(table: Table) -> Iterator[tuple[str, str, str, str]]:
    """Name, type, unit and meaning of every column."""
    for name, column in table.columns.items():
        yield name, column.type, unit(name), column.text


def page() -> str:
    """Return a section for each table as Markdown, headings from the second level on."""
    lines = []
    for name in query.names():
        table = described(name)
        lines += [f"## `{name}`", "", f"A row: {table.row}. From: {kind_of(name)}.", ""]
        lines += ["| column | type | unit | |", "|---|---|---|---|"]
        lines += [f"| `{column}` | {kind} | {in_unit} | {text} |" for column, kind, in_unit, text in _cells(table)]
        lines.append("")
    return "\n".join(lines)
