"""Where the running kernel keeps a field of its structures, and its functions' numbers, from the types that it tells.

The kernel describes its types in BTF (Documentation/bpf/btf.rst): a header, then types one after the other, numbered
from 1, whose names are offsets into the strings behind them.
"""

from __future__ import annotations

import errno
import struct

MYPY = False
if MYPY:
    from typing import Optional

PLACE = "/sys/kernel/btf/vmlinux"
MAGIC = 0xEB9F
HEAD = struct.Struct("<HBBIIIII")  # magic, version, flags, its length; offset and length of types, and of strings
TYPE = struct.Struct("<III")  # offset of the name; kind, and how many members; size, or the type that is meant
STRUCT, UNION, FUNCTION = 4, 5, 12
SAME = (8, 9, 10, 11, 18)  # typedef, volatile, const, restrict, type tag: the same memory as the type that is meant
# Bytes behind TYPE by kind: of each member, and of all. Kinds: int, array, enum, function's shape, variable, section,
# declaration tag, enum of 64 bits.
OF_MEMBERS = {STRUCT: 12, UNION: 12, 6: 8, 13: 8, 15: 12, 19: 12}
OF_ALL = {1: 4, 3: 12, 14: 4, 17: 4}


class KernelTypes:
    """What BTF says; OSError where it cannot be read, or does not know what is asked for."""

    def __init__(self, data: bytes) -> None:
        head = HEAD.unpack_from(data) if len(data) >= HEAD.size else (0,) * 8
        magic, _, _, length, types_at, types_bytes, texts_at, texts_bytes = head
        if magic != MAGIC:
            raise OSError(errno.EINVAL, "the kernel's types are not in the format BTF")
        self.texts = data[length + texts_at : length + texts_at + texts_bytes]
        self.data = data
        self.places = [0, *self.walk(length + types_at, length + types_at + types_bytes)]

    def walk(self, at: int, end: int) -> list[int]:
        """Return where each type begins."""
        steps = [TYPE.size + OF_ALL.get(kind, 0) for kind in range(32)]
        members = [OF_MEMBERS.get(kind, 0) for kind in range(32)]
        unpack, found = TYPE.unpack_from, []
        while at < end:
            found.append(at)
            info = unpack(self.data, at)[1]
            kind = info >> 24 & 31
            at += steps[kind] + members[kind] * (info & 0xFFFF)
        return found

    def text(self, at: int) -> str:
        return self.texts[at : self.texts.index(b"\0", at)].decode("ascii", "replace")

    def number(self, kind: int, name: str) -> int:
        """Return the number of the type of this kind and name."""
        wanted = b"\0%s\0" % name.encode()
        at = self.texts.find(wanted) + 1  # the kernel keeps each text once
        if at:
            for number, place in enumerate(self.places):
                if number and self.data[place + 7] & 31 == kind and TYPE.unpack_from(self.data, place)[0] == at:
                    return number
        raise OSError(errno.ENOENT, "the kernel does not know %s" % name)

    def function(self, name: str) -> int:
        return self.number(FUNCTION, name)

    def field(self, path: str) -> int:
        """Return the offset in bytes of "STRUCTURE.FIELD", or of a field of that field, and so on."""
        structure, *names = path.split(".")
        number, offset = self.number(STRUCT, structure), 0
        for name in names:
            found = self.member(number, name)
            if found is None:
                raise OSError(errno.ENOENT, "the kernel's %s has no %s" % (structure, name))
            number, offset = found[0], offset + found[1]
        return offset

    def member(self, number: int, name: str) -> Optional[tuple[int, int]]:
        """Return type and offset of a member, which may be of a structure without a name within; None of none."""
        at, info = self.resolved(number)
        if info >> 24 & 31 not in (STRUCT, UNION):
            return None
        for place in range(at + TYPE.size, at + TYPE.size + 12 * (info & 0xFFFF), 12):
            named, of, bits = TYPE.unpack_from(self.data, place)
            offset = (bits & 0xFFFFFF if info >> 31 else bits) // 8  # else the upper byte is a bit field's width
            if named and self.text(named) == name:
                return of, offset
            inner = self.member(of, name) if not named else None
            if inner is not None:
                return inner[0], offset + inner[1]
        return None

    def resolved(self, number: int) -> tuple[int, int]:
        """Return where the type is that a type stands for, and its kind with the number of its members."""
        while True:
            at = self.places[number]
            _, info, of = TYPE.unpack_from(self.data, at)
            if info >> 24 & 31 not in SAME:
                return at, info
            number = of


def running() -> KernelTypes:
    """Return the types of the kernel that runs."""
    with open(PLACE, "rb") as file:  # noqa: PTH123 - pathlib would take as long as reading it
        return KernelTypes(file.read())
