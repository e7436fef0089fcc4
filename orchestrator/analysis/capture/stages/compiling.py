"""Compile the capture reader: `python -m orchestrator.analysis.capture.stages.compiling`; see `compiled`."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from orchestrator.analysis.capture.stages import compiled


def build() -> bytes:
    """Return the machine code of everything in `program`: a line of JSON with symbols and places, then the objects."""
    compiled.building = True
    from numba import types as untyped_types
    from numba.core import compiler as untyped_compiler
    from numba.core.registry import cpu_target

    from orchestrator.analysis.capture.stages import program

    # Numba has no public way to machine code that can be kept without it.
    compiler: Any = untyped_compiler
    types: Any = untyped_types
    flags = compiler.Flags()
    flags.error_model = compiled.OPTIONS["error_model"]
    flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
    context = cpu_target.target_context
    words, code = {}, b""
    for name in program.CALLABLE:
        made = compiler.compile_extra(
            cpu_target.typing_context,
            context,
            getattr(program, name),
            (types.CPointer(types.int64),),
            types.int64,
            flags,
            {},
        )
        one = _object(made.library)
        words[name] = (made.fndesc.llvm_func_name, len(code), len(code) + len(one))
        code += one
    return json.dumps(words).encode() + b"\n" + code


def _object(library: Any) -> bytes:
    machine: Any = library.codegen._tm  # noqa: SLF001
    found: bytes = machine.emit_object(library._final_module)  # noqa: SLF001
    return found


if __name__ == "__main__":
    result = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is no code
    with os.fdopen(result, "wb") as out:
        out.write(build())
