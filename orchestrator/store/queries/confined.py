"""What SQL of a user's may do: one statement, which reads the tables that it is asked over and touches nothing else.

DuckDB itself can read and write every file that this process can, load extensions and open connections. So its access
is taken away but for the files that the tables are read from, for good; and since it would write these too, a statement
that changes anything, or carries out text as SQL, is refused before it begins.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING

from orchestrator.core.errors import ConfigError
from orchestrator.store.queries import selects

if TYPE_CHECKING:
    import duckdb

_KINDS = ("SELECT", "MULTI", "EXPLAIN", "PRAGMA")  # MULTI: a pivot, which finds its columns first
_CHANGING = frozenset({"copy", "insert", "update", "delete", "merge", "truncate", "export", "import"})
_OF_TEXT = frozenset({"query", "json_execute_serialized_sql", "import_database", "copy_database"})
_ACCEPTED = "accepted: one select, show tables, describe TABLE, summarize TABLE or explain select"
_HINT = "`orch query --unrestricted` carries out any SQL, with all that you may do yourself"


def check(connection: duckdb.DuckDBPyConnection, sql: str) -> None:
    """ConfigError for SQL that is no single statement, or one that may do more than read; DuckDB tells what is none."""
    import duckdb

    try:
        sql.encode()
        kinds = [one.type.name for one in connection.extract_statements(sql)]
    except UnicodeEncodeError:
        raise ConfigError("the query is not text in UTF-8") from None
    except duckdb.Error:
        return  # no SQL: DuckDB says where, when it is asked
    if len(kinds) > 1:
        raise ConfigError(f"{len(kinds)} statements are too many; {_ACCEPTED}", hint=_HINT)
    if kinds and kinds[0] not in _KINDS:
        raise ConfigError(f"{kinds[0].lower()} is refused: it may do more than read tables; {_ACCEPTED}", hint=_HINT)
    for word in _acting(sql):
        raise ConfigError(f"`{word}` is refused in a query: it may do more than read tables", hint=_HINT)


def _acting(sql: str) -> Iterable[str]:
    """Words that change something or carry out text, wherever in a statement: parts of one may be such statements."""
    import duckdb

    found, data = duckdb.tokenize(sql), sql.encode()  # by the places of their first bytes
    ends = [*(start for start, _ in found), len(data)][1:]
    words = [
        (kind.name, data[start:end].decode(errors="replace").strip().lower())
        for (start, kind), end in zip(found, ends, strict=True)
        if kind.name != "comment"
    ]
    for (kind, word), (_, following) in itertools.pairwise([*words, ("", "")]):
        called = kind == "identifier" and word.strip('"') in _OF_TEXT and following.startswith("(")
        if called or (kind == "keyword" and word in _CHANGING):
            yield word


def confine(connection: duckdb.DuckDBPyConnection, files: Iterable[str], *, spill: str) -> None:
    """Leave a connection these files, and no other file, extension, variable of Python's or setting, for good.

    What does not fit into memory goes to the folder `spill`, which is its own: DuckDB's usual one is `.tmp` where the
    command was called, and what lies there could be read.
    """
    names = {name for file in files for name in (file, selects.as_pattern(file))}
    allowed = ", ".join(map(selects.quoted, sorted(names)))
    connection.execute(
        f"set temp_directory = {selects.quoted(spill)}; set allowed_paths = [{allowed}]; "
        "set enable_external_access = false; set python_enable_replacements = false; set lock_configuration = true"
    )
