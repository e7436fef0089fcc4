"""Unaligned loads and stores of whole words, and prefetching, for the compiled part of the capture reader."""

from __future__ import annotations

from typing import Any

from orchestrator.analysis.capture.stages import compiled


def _compiled_loader(bits: int, *, big: bool) -> Any:
    """Compile a load of an unsigned integer as int64. It checks no bounds: the caller has done so."""
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

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


def _compiled_store(bits: int) -> Any:
    """Compile a store of the lowest bits of an integer, little-endian. It checks no bounds, as loads do not."""
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

    @intrinsic  # type: ignore[untyped-decorator,unused-ignore]
    def store(_typing: Any, data: Any, at: Any, value: Any) -> Any:  # noqa: ARG001
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            place = builder.gep(array.data, [arguments[1]])
            low = arguments[2] if bits == 64 else builder.trunc(arguments[2], ir.IntType(bits))
            builder.store(low, builder.bitcast(place, ir.IntType(bits).as_pointer())).align = 1
            return context.get_dummy_value()

        return types.void(data, types.int64, types.int64), generate

    return store


def _prefetch() -> Any:
    """Compile prefetch(array, at): ask for the memory of word `at` before it is needed."""
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

    @intrinsic  # type: ignore[untyped-decorator,unused-ignore]
    def prefetch(_typing: Any, data: Any, at: Any) -> Any:  # noqa: ARG001
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            bytes_at = ir.IntType(8).as_pointer()
            place = builder.bitcast(builder.gep(array.data, [arguments[1]]), bytes_at)
            kind = ir.FunctionType(ir.VoidType(), [bytes_at, *[ir.IntType(32)] * 3])
            name = "llvm.prefetch.p0"
            call = builder.module.globals.get(name) or ir.Function(builder.module, kind, name)
            read, keep, of_data = (ir.Constant(ir.IntType(32), value) for value in (0, 3, 1))
            builder.call(call, [place, read, keep, of_data])
            return context.get_dummy_value()

        return types.void(data, types.int64), generate

    return prefetch


def _plain_loader(bits: int, *, big: bool) -> Any:
    def load(data: Any, at: int) -> int:
        return int.from_bytes(data[at : at + bits // 8].tobytes(), "big" if big else "little", signed=bits == 64)

    return load


def _view(dimensions: int, *, signed: bool) -> Any:
    """Compile view(address, size), or view(address, rows, columns): memory as an array of 64-bit integers."""
    from numba import types
    from numba.core import cgutils as untyped_building
    from numba.extending import intrinsic
    from numba.np import arrayobj as untyped_arrays

    arrayobj: Any = untyped_arrays
    cgutils: Any = untyped_building
    kind = types.Array(types.int64 if signed else types.uint8, dimensions, "C")

    def made(context: Any, builder: Any, address: Any, shape: list[Any]) -> Any:
        array = arrayobj.make_array(kind)(context, builder)
        size = context.get_constant(types.intp, 8 if signed else 1)
        strides = [size] if len(shape) == 1 else [builder.mul(shape[1], size), size]
        place = builder.inttoptr(address, context.get_data_type(kind.dtype).as_pointer())
        arrayobj.populate_array(
            array,
            data=place,
            shape=cgutils.pack_array(builder, shape),
            strides=cgutils.pack_array(builder, strides),
            itemsize=size,
            meminfo=None,
        )
        return array._getvalue()  # noqa: SLF001

    if dimensions == 1:

        @intrinsic  # type: ignore[untyped-decorator,unused-ignore]
        def row(_typing: Any, address: Any, size: Any) -> Any:  # noqa: ARG001
            def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
                return made(context, builder, arguments[0], [arguments[1]])

            return kind(types.int64, types.int64), generate

        return row

    @intrinsic  # type: ignore[untyped-decorator,unused-ignore]
    def table(_typing: Any, address: Any, rows: Any, columns: Any) -> Any:  # noqa: ARG001
        def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            return made(context, builder, arguments[0], list(arguments[1:]))

        return kind(types.int64, types.int64, types.int64), generate

    return table


def _words() -> Any:
    """Compile words(pointer): its address as an integer."""
    from numba import types
    from numba.extending import intrinsic

    @intrinsic  # type: ignore[untyped-decorator,unused-ignore]
    def address(_typing: Any, pointer: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
            from llvmlite import ir

            return builder.ptrtoint(arguments[0], ir.IntType(64))

        return types.int64(pointer), generate

    return address


_loader = _compiled_loader if compiled.building else _plain_loader
be16, be32, be64 = (_loader(bits, big=True) for bits in (16, 32, 64))
le16, le32 = (_loader(bits, big=False) for bits in (16, 32))
le64 = _loader(64, big=False)
# What only the compiled part has: stores of little-endian integers; a prefetch; memory at an address as bytes, as
# words, as a table of words; a pointer's address.
store8: Any = _compiled_store(8) if compiled.building else None
store16: Any = _compiled_store(16) if compiled.building else None
store32: Any = _compiled_store(32) if compiled.building else None
store64: Any = _compiled_store(64) if compiled.building else None
prefetch: Any = _prefetch() if compiled.building else None
octets: Any = _view(1, signed=False) if compiled.building else None
words: Any = _view(1, signed=True) if compiled.building else None
table: Any = _view(2, signed=True) if compiled.building else None
address: Any = _words() if compiled.building else None
