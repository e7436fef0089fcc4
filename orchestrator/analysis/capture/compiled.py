"""How the stages of the capture reader are compiled, and loads of whole words at any byte of a buffer."""

# Every compiled stage is one file: Numba's cache of a function watches the file that holds it, and no other. These
# loads are the exception that all stages share; after a change here remove the *.nbi files from __pycache__.

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

# Without Numba's reference counts (_nrt), which are four fifths of the time where functions hand arrays to each other.
# Such code cannot make arrays: callers bring them. Without the interpreter's lock, so that threads read side by side.
_OPTIONS: dict[str, Any] = {"cache": True, "error_model": "numpy", "nogil": True, "_nrt": False}

F = TypeVar("F", bound=Callable[..., Any])


def stage(function: F) -> F:
    """Compile a function of the reader, and keep what was compiled beside its file."""
    return cast("F", njit(**_OPTIONS)(function))


def _loader(bits: int, *, big: bool) -> Any:
    """A compiled load of an unsigned integer as int64. It checks no bounds: whoever calls it has done so."""

    @intrinsic  # type: ignore[untyped-decorator,unused-ignore]
    def load(_typing: Any, data: Any, at: Any) -> Any:  # noqa: ARG001
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            place = builder.gep(array.data, [arguments[1]])
            value = builder.load(builder.bitcast(place, ir.IntType(bits).as_pointer()))
            value.align = 1
            if big:
                value = builder.bswap(value)
            return value if bits == 64 else builder.zext(value, ir.IntType(64))

        return types.int64(data, types.int64), generate

    return load


be16, be32, be64 = (_loader(bits, big=True) for bits in (16, 32, 64))
le16, le32 = (_loader(bits, big=False) for bits in (16, 32))
