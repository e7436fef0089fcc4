"""Compile the simulation at its first call, and keep the machine code for the next process.

It lies in a folder that is named after all sources that went into it: Numba itself looks at the file of a function
alone, not at those of the functions that are compiled into it. The folder is in NUMBA_CACHE_DIR where that is set, else
beside this package's bytecode, else in the user's cache; where none may be written, each process compiles anew.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

from orchestrator.core import machine_code

F = TypeVar("F", bound=Callable[..., Any])

_HERE = Path(__file__).parent
_SOURCES = ("compiled", "machine", "flows", "packets")
_KIND = "simulation-"


def compiled(function: F) -> F:
    """Mark a function that is compiled.

    It makes no arrays: Numba's reference counts (_nrt) would be nine tenths of the time, since functions hand records
    of many arrays to each other.
    """
    folder = _folder()
    compiler: Any = numba  # `_nrt` and the folder are no part of its typed interface
    before, compiler.config.CACHE_DIR = compiler.config.CACHE_DIR, str(folder or "")
    try:
        return cast("F", compiler.njit(cache=folder is not None, error_model="numpy", _nrt=False)(function))
    finally:
        compiler.config.CACHE_DIR = before


def call(function: Callable[..., Any], *args: Any) -> Any:
    """Call a compiled function; of processes that begin at once one compiles it, and the others wait for its code."""
    dispatcher: Any = function
    compiler: Any = numba
    if not dispatcher.signatures:
        places = _places()
        with machine_code.compiling_alone(places, _KIND):
            folder = _folder()
            if folder is not None:
                os.utime(folder)
                for old in machine_code.superseded(folder.parent, f"{_KIND}*"):
                    shutil.rmtree(old, ignore_errors=True)
            dispatcher.compile(tuple(compiler.typeof(arg) for arg in args))
    return function(*args)


def _places() -> tuple[Path, ...]:
    given = os.environ.get("NUMBA_CACHE_DIR")
    return ((Path(given),) if given else ()) + machine_code.folders(_HERE)


@functools.cache
def _folder() -> Path | None:
    """Return the folder of these sources' code, made in the first place that can be written; None without one."""
    content = hashlib.sha256(b"".join((_HERE / f"{name}.py").read_bytes() for name in _SOURCES)).hexdigest()[:16]
    for place in _places():
        folder = place / f"{_KIND}{content}"
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError:  # it may not be written, or something else has the name
            continue
        if os.access(folder, os.W_OK | os.X_OK):
            return folder
    return None
