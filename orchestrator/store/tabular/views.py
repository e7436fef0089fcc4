"""Views for queries over the files of tables, and the files as they are.

A rank logs its warm-up too, and a flow is captured at both of its ends. So `avg(seconds)` over the file of iterations,
or `sum(wire_bytes)` over that of captured flows, would be of something else than what is meant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from orchestrator.parts.rows import DESCRIBED
from orchestrator.parts.schema.column import Column, Table
from orchestrator.store.tabular.tables import key_columns

ALL = "all_"  # before the name of a file's table whose view leaves out what no window has
OF_WINDOWS = {  # view -> table; `overlaps` is a word of SQL's own
    "iterations": "iterations",
    "spans": "spans",
    "overlap": "overlaps",
    "collectives": "collectives",
    "communication": "communication",
    "routing": "routing",
}
_NOT_ASKED = ("windows",)  # files whose place a table of manifests takes


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A view: its rows and columns, the tables that it is made of, and how."""

    table: Table
    of: tuple[str, ...]
    sql: str


def columns_of(name: str) -> Mapping[str, Column]:
    """Return the columns of a table's file."""
    return {**key_columns(name), **DESCRIBED[name].columns}


def _of_windows(name: str) -> View:
    return View(
        table=Table(f"{DESCRIBED[name].row}; of measured windows alone ({ALL}{name}: warm-up too)", columns_of(name)),
        of=(f"{ALL}{name}",),
        sql=f"select * from {ALL}{name} where window_name <> ''",  # noqa: S608 - names of ours
    )


# As the report does: where it is sent from if that was captured, else where it arrives, else at one other place.
_ONCE = """
select f.run, s.host as src_host, d.host as dst_host, f.* exclude (run, launch)
from capture_flows f
left join hosts s on s.run = f.run and s.address = f.src and s.address <> ''
left join hosts d on d.run = f.run and d.address = f.dst and d.address <> ''
qualify dense_rank() over (
    partition by f.run, f.protocol, f.src, f.src_port, f.dst, f.dst_port
    order by case f.node when s.host then 0 when d.host then 1 else 2 end, f.node, f.launch, f.port
) = 1
"""

VIEWS: Mapping[str, View] = {
    **{view: _of_windows(name) for view, name in OF_WINDOWS.items()},
    "captured_flows_once": View(
        table=Table(
            "a flow of the captures, once: as captured where it is sent from, else where it arrives "
            "(capture_flows: every capture point)",
            {
                "run": Column("string", "id of the run"),
                "src_host": Column("string", "name of the sending host; missing for an address of no host"),
                "dst_host": Column("string", "name of the receiving host, likewise"),
                "node": Column("string", "node that captured it"),
                **DESCRIBED["capture_flows"].columns,
            },
        ),
        of=("capture_flows", "hosts"),
        sql=_ONCE,
    ),
}

OF_FILES = tuple(
    f"{ALL}{name}" if name in OF_WINDOWS.values() else name for name in DESCRIBED if name not in _NOT_ASKED
)
NAMES = (*VIEWS, *OF_FILES)


def file_of(name: str) -> str:
    """Return the table whose file has the rows of a table of `OF_FILES`."""
    return name.removeprefix(ALL)


def described(name: str) -> Table:
    """Rows and columns of a view, or of a table of files as queries see it."""
    if name in VIEWS:
        return VIEWS[name].table
    file = file_of(name)
    more = ", also of warm-up and outside of windows" if name != file else ""
    return Table(DESCRIBED[file].row + more, columns_of(file))


def needed(mentioned: Iterable[str]) -> set[str]:
    """Return the tables that a query needs which mentions these."""
    named = set(mentioned)
    return named | {table for name in named & VIEWS.keys() for table in VIEWS[name].of}
