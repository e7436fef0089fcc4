"""Ask the question of a figure: carry out its steps one after the other."""

from __future__ import annotations

import csv
import importlib.util
import io
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

from orchestrator.core.errors import ConfigError, OrchError
from orchestrator.experiment import documents
from orchestrator.experiment.paperfile import Figure, FiguresFile, PaperFile, Printed, Step
from orchestrator.experiment.validation import validate
from orchestrator.questions import registry
from orchestrator.questions.rows import Measured, Rows
from orchestrator.store import query, stores
from orchestrator.store.picked import of_entries
from orchestrator.store.rundir import Entry

SQL = "sql"
OWN = "answers"


@dataclass(frozen=True, kw_only=True)
class Paper:
    """A paper, or figures alone, that were read, and the folder in which they lie."""

    file: FiguresFile
    folder: Path

    @property
    def paper(self) -> PaperFile:
        """The paper's file, which figures alone are not."""
        if not isinstance(self.file, PaperFile):
            raise ConfigError(f"{self.folder}: is no paper", hint="orch figure FILE RUNS draws its figures")
        return self.file

    @cached_property
    def own(self) -> dict[str, Callable[..., Any]]:
        """The functions of its `answers.py`: to read them carries that file out."""
        path = self.folder / f"{OWN}.py"
        if not path.is_file():
            return {}
        spec = importlib.util.spec_from_file_location(f"orch_answers_of_{self.folder.name}", path)
        if spec is None or spec.loader is None:
            raise ConfigError(f"{path}: cannot be read as Python")
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except Exception as error:  # noqa: BLE001 - whatever a paper's author wrote
            raise ConfigError(f"{path}: {type(error).__name__}: {error}") from None
        return {name: one for name, one in vars(module).items() if callable(one) and not name.startswith("_")}

    def function(self, name: str) -> Callable[..., Any]:
        """Return the function that a step or a drawing names; ConfigError where there is none."""
        own = name.removeprefix(f"{OWN}.")
        found = self.own.get(own) if own != name else registry.functions().get(name)
        if found is None:
            known = (
                [f"{OWN}.{one}" for one in self.own if registry.kind_of(self.own[one])]
                if own != name
                else [SQL, *registry.functions()]
            )
            raise ConfigError(f"{self.folder}: {name}: no such step; accepted: {', '.join(known) or 'none'}")
        return found

    def steps(self) -> Iterator[tuple[Step, bool]]:
        """Yield every step of the paper, and whether it is the first of its question."""
        for figure in self.file.figures:
            yield from ((one, place == 0) for place, one in enumerate(figure.ask))
            others = [
                *(draw.ask for draw in figure.draw),
                *(of for check in figure.holds for of in check.fails.values()),
            ]
            yield from ((one, False) for one in itertools.chain.from_iterable(others))

    def check_steps(self) -> None:
        """Raise ConfigError for a step that names no function, or one with other arguments."""
        for one, first in self.steps():
            if one.name != SQL:
                registry.check(one.name, self.function(one.name), one.arguments, first=first)
            elif set(one.arguments) != {"text"}:
                raise ConfigError(f"{self.folder}: sql: accepted: one select, as text")
            else:
                _check_sql(self, one.arguments["text"])


def _check_sql(paper: Paper, sql: str) -> None:
    """Raise ConfigError for a text that is not one select; names of tables and columns are known when it is asked."""
    import duckdb

    try:
        kinds = [one.type for one in duckdb.extract_statements(sql)]
    except duckdb.Error as error:
        raise ConfigError(f"{_place(paper, sql)}: {error}") from None
    if kinds != [duckdb.StatementType.SELECT]:
        raise ConfigError(f"{_place(paper, sql)}: accepted: one select")


def asked(steps: Sequence[Mapping[str, Any]], entries: Sequence[Entry]) -> Rows:
    """Return the rows that these steps give of runs; ConfigError for a step that there is not."""
    document = documents.Document("question", {"figures": [{"title": "question", "ask": list(steps)}]}, None)
    paper = Paper(file=validate(document, FiguresFile), folder=Path())
    paper.check_steps()
    return answer(paper, paper.file.figures[0], Measured(entries=tuple(entries)))


def answer(paper: Paper, figure: Figure, measured: Measured) -> Rows:
    """Return the rows that answer a figure's question; none where it asks nothing."""
    return changed(paper, first(paper, figure, measured), figure.ask[1:])


def first(paper: Paper, figure: Figure, measured: Measured) -> Rows:
    """Return the rows of the first step: what was measured."""
    if not figure.ask:
        return []
    one = figure.ask[0]
    key = (one.name, repr(sorted(one.arguments.items())))
    return measured.once(key, lambda: _first(paper, one, measured))


def _first(paper: Paper, one: Step, measured: Measured) -> Rows:
    if one.name != SQL:
        return _called(paper, one, measured)
    if not measured.entries:
        return []
    store = stores.opened(str(measured.entries[0].path.absolute().parent.parent))
    sql = one.arguments["text"]
    try:
        return _plain(query.table(store, of_entries(measured.entries), sql).to_pylist())
    except ConfigError as error:
        raise ConfigError(f"{_place(paper, sql)}: {error.message}", hint=error.hint) from None


def _place(paper: Paper, sql: str) -> str:
    return f"{paper.folder}: {next(iter(sql.strip().splitlines()), '')} ..."


def _plain(rows: Rows) -> Rows:
    """Return rows of SQL without its decimals, which sums of whole numbers and numbers such as 0.5 are."""
    return [
        {name: _number(value) if isinstance(value, Decimal) else value for name, value in row.items()} for row in rows
    ]


def _number(value: Decimal) -> int | float:
    return float(value) if value.as_tuple().exponent else int(value)


def changed(paper: Paper, rows: Rows, steps: Sequence[Step]) -> Rows:
    """Return rows after these steps; rows that are none stay so."""
    for one in steps:
        if not rows:
            return []
        rows = _selected(paper, one.arguments["text"], rows) if one.name == SQL else _called(paper, one, rows)
    return rows


def _called(paper: Paper, one: Step, of: Any) -> Rows:
    try:
        found: Rows = paper.function(one.name)(of, **one.arguments)
    except OrchError:
        raise
    except Exception as error:  # noqa: BLE001 - a column that rows lack, or whatever a paper's author wrote
        columns = f"; columns of its rows: {', '.join(of[0])}" if isinstance(of, list) and of else ""
        raise ConfigError(f"{paper.folder}: {one.name}: {type(error).__name__}: {error}{columns}") from None
    return found


def _selected(paper: Paper, sql: str, rows: Rows) -> Rows:
    """Carry out SQL over the rows, as the table `answer`, and printed tables, as `printed_NAME`."""
    import duckdb
    import pyarrow as pa

    with duckdb.connect(":memory:") as connection:
        try:
            connection.register("answer", pa.Table.from_pylist(_whole(rows)))
            for name, table in paper.file.printed.items():
                connection.register(f"printed_{name}", pa.Table.from_pylist(_whole(as_rows(table))))
        except pa.ArrowException as error:
            raise ConfigError(f"{_place(paper, sql)}: a column has values of several kinds: {error}") from None
        connection.execute(
            "set enable_external_access = false; set python_enable_replacements = false; set lock_configuration = true"
        )
        try:
            return _plain(connection.sql(sql).to_arrow_table().to_pylist())
        except duckdb.Error as error:
            raise ConfigError(f"{_place(paper, sql)}: {error}") from None


def _whole(rows: Rows) -> Rows:
    """Return rows that all have all columns."""
    columns = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name) for name in columns} for row in rows]


def as_rows(table: Printed) -> Rows:
    """Return a printed table with its numbers as such."""
    return [
        {name: value if (known := table.number(row, name)) is None else known.value for name, value in row.items()}
        for row in table.rows
    ]


def printed_rows(table: Printed, keys: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the printed rows with these values, in the columns that the table has."""
    return [row for row in table.rows if all(name not in row or row[name] == value for name, value in keys.items())]


def csv_text(rows: Rows) -> str:
    """Return rows as CSV, with all their columns."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(dict.fromkeys(name for row in rows for name in row)))
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()
