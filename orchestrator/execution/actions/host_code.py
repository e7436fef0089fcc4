"""What a host runs to reduce captures: the modules that it takes, as an archive that any Python runs."""

from __future__ import annotations

import ast
import functools
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

PROGRAM = "orchestrator.analysis.on_host"
# Started by its name: it compiles what `stages` has, where no machine code lies.
BESIDE = "orchestrator.analysis.capture.stages.compiling"
ARCHIVE = "reduce.pyz"

_ROOT = Path(__file__).parents[3]
_PACKAGE = __name__.partition(".")[0]
_DATE = (1980, 1, 1, 0, 0, 0)  # the earliest that the format has: equal modules make equal archives
# The reader of captures looks for its own files, so that they have to lie in a folder while it runs. Machine code is
# not kept there (-B), but in the user's cache, where the next run finds it.
_START = f"""import os, runpy, shutil, sys, zipfile
if sys.version_info < (3, 10):
    sys.exit("captures are reduced by Python 3.10 or later, and this is %d.%d" % sys.version_info[:2])
code = os.path.abspath("code")
shutil.rmtree(code, ignore_errors=True)
try:
    with zipfile.ZipFile("{ARCHIVE}") as archive:
        archive.extractall(code)
    os.unlink("{ARCHIVE}")
    sys.path[0] = code
    runpy.run_module("{PROGRAM}", run_name="__main__")
finally:
    shutil.rmtree(code, ignore_errors=True)
"""


@functools.cache
def packed() -> bytes:
    """The archive, as Python's `zipapp` makes them; packages are empty in it but for the modules in them."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:

        def add(name: str, text: bytes) -> None:
            archive.writestr(zipfile.ZipInfo(name, _DATE), text, zipfile.ZIP_DEFLATED, compresslevel=9)

        add("__main__.py", _START.encode())
        modules = sorted(_needed(PROGRAM, BESIDE))
        above = {str(folder) for module in modules for folder in Path(*module.split(".")).parents} - {"."}
        for folder in sorted(above):
            add(f"{folder}/__init__.py", b"")
        for module in modules:
            path = _source(module)
            add(path.relative_to(_ROOT).as_posix(), path.read_bytes())
    return written.getvalue()


def _needed(*modules: str) -> set[str]:
    """These modules and all that they import of ours, wherever the import stands."""
    found: set[str] = set()
    left = list(modules)
    while left:
        module = left.pop()
        if module not in found:
            found.add(module)
            left += _imported(module)
    return found


def _imported(module: str) -> Iterator[str]:
    path = _source(module)
    for node in ast.walk(ast.parse(path.read_bytes(), str(path))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == _PACKAGE:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            yield from (name for name in names if _source(name).is_file())


def _source(module: str) -> Path:
    return _ROOT.joinpath(*module.split(".")).with_suffix(".py")
