"""The compiled part of the capture reader: made by Numba once, into a file, and loaded without Numba ever after.

`import numba` alone takes longer than most captures. So functions marked `stage` are plain Python here; only the
process that `compiling` is compiles them, with those of `program` as what can be called, and keeps the machine code as
a file beside this package's bytecode (or in the user's cache, where no bytecode is to be written there). The file's
name holds a hash of every source that went into it and of the processor, so that none is ever out of date.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from orchestrator.core.errors import CaptureError

F = TypeVar("F", bound=Callable[..., Any])
Call = Callable[[int], int]

# The files whose code is compiled.
SOURCES = (
    "compiled", "loads", "framing", "tunnels", "decoding", "dealing", "holes", "segments", "closing", "accounting",
    "queuepairs", "sightings", "packing", "laying", "program",
)  # fmt: skip
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
    """Mark a function of the compiled part that has no call of its own where it is called.

    A call hands over every word of every array, which takes longer than what small functions do.
    """
    if building:
        from numba import njit

        return njit(forceinline=True, **OPTIONS)(function)  # type: ignore[no-any-return]
    return function


@functools.cache
def program() -> Mapping[str, Call]:
    """What can be called, by name: each takes the address of its words and gives a number.

    Calls release the interpreter's lock. The first one on a machine compiles, which takes seconds.
    """
    from llvmlite import binding as llvm

    path = _file(llvm.get_host_cpu_name() + llvm.get_host_cpu_features().flatten())
    head, _, code = path.read_bytes().partition(b"\n")
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


def _callable(engine: Any, address: int) -> Call:
    function = _CALLED(address)

    def call(words: int, _engine: Any = engine) -> int:  # the code lives as long as its engine
        result, nothing = ctypes.c_int64(), _EXCEPTION()
        if function(ctypes.byref(result), ctypes.byref(nothing), words):
            raise RuntimeError("compiled code of the capture reader failed")
        return result.value

    return call


def _file(processor: str) -> Path:
    """Where the machine code is, compiled first if it is nowhere."""
    here = Path(__file__).parent
    content = hashlib.sha256(b"".join((here / f"{name}.py").read_bytes() for name in SOURCES)).hexdigest()[:16]
    kind = f"reader-{hashlib.sha256(processor.encode()).hexdigest()[:12]}-"
    folders = (_cache(),) if sys.dont_write_bytecode else (here / "__pycache__", _cache())
    name = f"{kind}{content}.bin"
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    folder = _writable(folders)
    argv = [sys.executable, "-m", "orchestrator.analysis.capture.stages.compiling", str(folder / name)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=here.parents[3])
    if done.returncode:
        said = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        raise CaptureError(f"the capture reader cannot be compiled: {said}", hint=f"run {' '.join(argv)}")
    for old in folder.glob(f"{kind}*.bin"):
        if old.name != name:
            old.unlink(missing_ok=True)
    return folder / name


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "orch" / "compiled"


def _writable(folders: tuple[Path, ...]) -> Path:
    """The first folder that is to be written: CaptureError when there is none."""
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder
    raise CaptureError("there is no place for the compiled capture reader", hint=f"make {folders[-1]} writable")
