"""Compile the capture reader with Numba once, cache the machine code in a file, and load it without Numba.

`import numba` alone takes longer than most captures. So functions marked `stage` are plain Python here; only the
process that `compiling` is compiles them, with those of `program` as what can be called, and the machine code is kept
as a file beside this package's bytecode (or in the user's cache, where no bytecode is to be written there). The file's
name holds a hash of every source that went into it and of the processor, so that none is ever out of date. What is
loaded is a file of this user's or root's that nobody else may write, and that is whole by the digest in its first line;
any other one is as good as none. Where no file can be kept, the code is made for this process alone. Of processes that
begin at once, such as those of nodes that share a home, one compiles while the others wait for its file.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from orchestrator.core import machine_code
from orchestrator.core.errors import CaptureError

F = TypeVar("F", bound=Callable[..., Any])
Call = Callable[[int], int]

# The files whose code is compiled.
SOURCES = (
    "compiled",
    "loads",
    "framing",
    "decoding",
    "segments",
    "accounting",
    "queuepairs",
    "sightings",
    "bin_rows",
    "program",
)
_LONGEST_LINE = 256  # bytes of a file's first line
building = False  # whether this process is the one that compiles; set before any of SOURCES is imported

# Without Numba's reference counts (_nrt), which are four fifths of the time where functions hand arrays to each other.
# Such code cannot make arrays: callers bring them.
OPTIONS: Mapping[str, Any] = {"error_model": "numpy", "_nrt": False}

_EXCEPTION = ctypes.c_void_p  # where compiled code would put one; it raises none
_CALLED = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(ctypes.c_int64), ctypes.POINTER(_EXCEPTION), ctypes.c_void_p)


def stage(function: F) -> F:
    """Mark a function of the compiled part."""
    if building:
        from numba import njit

        return njit(**OPTIONS)(function)  # type: ignore[no-any-return]
    return function


def inline(function: F) -> F:
    """Mark a function of the compiled part that is inlined where it is called.

    A call hands over every word of every array, which takes longer than what small functions do.
    """
    if building:
        from numba import njit

        return njit(forceinline=True, **OPTIONS)(function)  # type: ignore[no-any-return]
    return function


@functools.cache
def program() -> Mapping[str, Call]:
    """Return the compiled functions by name: each takes the address of its words and returns a number.

    Calls release the interpreter's lock. The first one on a machine compiles, which takes seconds.
    """
    from llvmlite import binding as llvm

    head, _, code = _code(_processor()).partition(b"\n")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(codemodel="jitdefault")
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    found = {}
    for name, (symbol, begin, end) in json.loads(head).items():
        engine.add_object_file(llvm.ObjectFileRef.from_data(code[begin:end]))
        found[name] = symbol
    engine.finalize_object()
    return {name: _callable(engine, engine.get_function_address(symbol)) for name, symbol in found.items()}


def _processor() -> str:
    """Return the words that tell this processor and its compiler from those of other machine code."""
    import llvmlite
    from llvmlite import binding as llvm

    return str(llvm.get_host_cpu_name() + llvm.get_host_cpu_features().flatten() + llvmlite.__version__)


def _callable(engine: Any, address: int) -> Call:
    function = _CALLED(address)

    def call(words: int, _engine: Any = engine) -> int:  # the code lives as long as its engine
        result, nothing = ctypes.c_int64(), _EXCEPTION()
        if function(ctypes.byref(result), ctypes.byref(nothing), words):
            raise RuntimeError("compiled code of the capture reader failed")
        return result.value

    return call


def _code(processor: str) -> bytes:
    """Return the machine code for a processor, as `compiling` makes it; compiled where no cache has it."""
    here = Path(__file__).parent
    content = hashlib.sha256(b"".join((here / f"{name}.py").read_bytes() for name in SOURCES)).hexdigest()[:16]
    kind = f"reader-{hashlib.sha256(processor.encode()).hexdigest()[:12]}-"
    folders = machine_code.folders(here)
    name = f"{kind}{content}.bin"
    if (found := _found(folders, name)) is not None:
        return found
    with machine_code.compiling_alone(folders, kind):
        return _found(folders, name) or _compiled(folders, kind, name)


def _found(folders: Sequence[Path], name: str) -> bytes | None:
    """Return the code of the first folder that has a whole file of that name."""
    return next((code for folder in folders if (code := _kept(folder / name)) is not None), None)


def _compiled(folders: Sequence[Path], kind: str, name: str) -> bytes:
    """Compile the code and keep it in the first folder that takes it, where the oldest versions go."""
    argv = [sys.executable, "-m", "orchestrator.analysis.capture.stages.compiling"]
    done = subprocess.run(argv, capture_output=True, check=False, cwd=Path(__file__).parents[4])
    if done.returncode:
        said = (done.stderr.decode(errors="replace").strip().splitlines() or [f"status {done.returncode}"])[-1]
        raise CaptureError(f"the capture reader cannot be compiled: {said}", hint=f"run {' '.join(argv)} > /dev/null")
    for folder in folders:
        try:
            _keep(folder / name, done.stdout)
        except OSError:  # it may not be written, or is full, or something else has the name
            continue
        with contextlib.suppress(OSError):
            for old in machine_code.superseded(folder, f"{kind}*.bin"):
                old.unlink()
        break
    return done.stdout


def _first_line(name: str, code: bytes) -> bytes:
    """Return the first line of a whole cache file of this code: its digest."""
    return f"{name} {len(code)} {hashlib.sha256(code).hexdigest()}\n".encode()


def _kept(path: Path) -> bytes | None:
    """Return the code of a cache file that is whole and that no other user could have written; None for any other."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            about = os.fstat(descriptor)
            others = about.st_uid not in (0, os.geteuid()) or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            if others or not stat.S_ISREG(about.st_mode):
                return None
            first = file.readline(_LONGEST_LINE)
            code = file.read()
    except OSError:
        return None
    return code if first == _first_line(path.name, code) else None


def _keep(path: Path, code: bytes) -> None:
    """Write the code to a cache file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Under another name first: somebody may be reading, and whoever writes may be killed.
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".reader-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(_first_line(path.name, code) + code)
            file.flush()
            os.fchmod(descriptor, 0o644)
            os.fsync(descriptor)
        Path(temporary).replace(path)
    except OSError:
        Path(temporary).unlink()
        raise
