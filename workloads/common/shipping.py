"""Packs programs of ranks into an archive that any Python runs, with the imported modules of `workloads.rank`."""

from __future__ import annotations

import ast
import functools
import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from itertools import accumulate
from pathlib import Path

import workloads.rank
from workloads.rank import lifecycle

ARCHIVE = "rank.pyz"

_FOLDER = Path(workloads.rank.__file__).parent
_START = "from rank.__main__ import main\n\nmain()\n"
_DATE = (1980, 1, 1, 0, 0, 0)  # the earliest that the format has: equal modules make equal archives

Module = tuple[str, ...]  # ("torch", "ddp"); the package itself is ()


def argv(python: str, program: str, *options: str) -> tuple[str, ...]:
    """Return the command of a program, such as `torch.ddp`, in a folder that has the archive."""
    return (python, "-u", ARCHIVE, program, *options)


def files(*programs: str, settings: Mapping[str, object] | None = None) -> dict[str, bytes | Path]:
    """Return the files of a launch that runs these programs: the archive, and the settings that they read."""
    given = {} if settings is None else {lifecycle.SETTINGS_FILE: json.dumps(settings).encode()}
    return {ARCHIVE: packed(*programs), **given}


@functools.cache
def packed(*programs: str) -> bytes:
    """Return the archive, as Python's `zipapp` makes them.

    It is compressed, since it is fetched with the launch's output.
    """
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        archive.writestr(zipfile.ZipInfo("__main__.py", _DATE), _START)
        for module in sorted(_needed(("__main__",), *(tuple(program.split(".")) for program in programs))):
            path = _source(module)
            entry = zipfile.ZipInfo(f"rank/{path.relative_to(_FOLDER).as_posix()}", _DATE)
            archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED, compresslevel=9)
    return written.getvalue()


def _needed(*modules: Module) -> set[Module]:
    """Return these modules, their packages, and all modules of `workloads.rank` that they import anywhere."""
    found: set[Module] = set()
    left = list(modules)
    while left:
        module = left.pop()
        if module not in found:
            found.add(module)
            left += [(), *accumulate((step,) for step in module[:-1]), *_imported(module)]
    return found


def _source(module: Module) -> Path:
    place = _FOLDER.joinpath(*module)
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


def _imported(module: Module) -> Iterator[Module]:
    """Yield the modules of the package that this one imports; its imports of them are relative."""
    path = _source(module)
    package = path.parent.relative_to(_FOLDER).parts
    for node in ast.walk(ast.parse(path.read_bytes(), str(path))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = (*package[: len(package) + 1 - node.level], *(node.module or "").split("."))
            base = tuple(step for step in base if step)
            yield base
            yield from (within for alias in node.names if _source(within := (*base, alias.name)).exists())
