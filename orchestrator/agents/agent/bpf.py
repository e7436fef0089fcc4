"""Programs in the kernel (eBPF) by system calls alone: maps, programs, and links to network devices.

Whatever is made here is a file descriptor, and goes with the process that has it: nothing is pinned. Byte code comes
from a file that tests/helpers/bpf_objects.py made of C; it is the same on every processor that counts its low byte
first. Failures are OSErrors whose text says what the kernel lacks or forbids.
"""

from __future__ import annotations

import base64
import ctypes
import errno
import json
import mmap
import os
import resource
import struct
import sys

MYPY = False
if MYPY:
    from typing import Mapping, NoReturn

NUMBERS = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "loongarch64": 280, "ppc64le": 361}  # of bpf(2)
MAP_CREATE, MAP_LOOKUP, MAP_UPDATE, PROG_LOAD, LINK_CREATE = 0, 1, 2, 5, 28
SCHED_CLS = 3  # type of program
TCX_INGRESS, TCX_EGRESS = 46, 47  # where a link attaches one (Linux 6.6)
ATTRIBUTES = 128  # bytes of union bpf_attr that are passed; beyond what a kernel knows they have to be 0
LOG_BYTES = 1 << 16
PSEUDO_MAP_FD = 1  # src_reg of an instruction that loads a map's address
PSEUDO_FUNCTION = 2  # src_reg of a call whose number is that of a function of the kernel, not of a helper
CALL = 0x85  # opcode
RECORD_HEAD = 8  # bytes before a record of a ring; the last one of the first word says that it is being written
BUSY_BYTE, BUSY = 3, b"\x80"
LICENSE = "Apache-2.0"
RETURN_0 = struct.pack("<QQ", 0xB7, 0x95)  # r0 = 0; exit


class MapShape:
    """The type of a map, bytes of its keys and values, its entries and flags, as BPF_MAP_CREATE takes them."""

    def __init__(self, kind: int, key_bytes: int, value_bytes: int, entries: int, flags: int) -> None:
        self.kind, self.key_bytes, self.value_bytes = kind, key_bytes, value_bytes
        self.entries, self.flags = entries, flags


class Program:
    """Instructions, and what each instruction of these numbers refers to, by name: a map, or a symbol.

    A symbol is a number that is known when the program is loaded, or a function of the kernel where it is called.
    """

    def __init__(
        self, code: bytes, maps: Mapping[int, str], symbols: Mapping[int, str], license_: str = LICENSE
    ) -> None:
        self.code, self.maps, self.symbols, self.license = code, maps, symbols, license_


def read_object(path: str) -> tuple[dict[str, MapShape], dict[str, Program]]:
    """Return the maps and programs of a file of byte code, by their names."""
    with open(path, encoding="ascii") as file:
        found = json.load(file)

    def by_place(names: dict[str, str]) -> dict[int, str]:
        return {int(place): name for place, name in names.items()}

    programs = {
        name: Program(base64.b64decode(one["code"]), by_place(one["maps"]), by_place(one["symbols"]), found["license"])
        for name, one in found["programs"].items()
    }
    return {name: MapShape(*shape) for name, shape in found["maps"].items()}, programs


def call(command: int, attributes: bytes) -> tuple[int, bytes]:
    """Return what bpf(2) returned, and the attributes as the kernel left them; OSError where it failed."""
    buffer = ctypes.create_string_buffer(attributes, ATTRIBUTES)
    return syscall(command, buffer), buffer.raw


def syscall(command: int, attributes: ctypes.Array[ctypes.c_char]) -> int:
    """Return what bpf(2) returned; OSError where it failed."""
    machine = os.uname().machine
    if machine not in NUMBERS or sys.byteorder != "little":
        raise OSError(errno.ENOSYS, "byte code is not made for %s" % machine)
    libc = ctypes.CDLL(None, use_errno=True)
    numbers = ctypes.c_long(NUMBERS[machine]), ctypes.c_long(command)
    done: int = libc.syscall(*numbers, attributes, ctypes.c_long(ATTRIBUTES))
    if done < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return done


def create_map(name: str, shape: MapShape) -> int:
    """Return the descriptor of a new map."""
    unlimited()
    fields = (shape.kind, shape.key_bytes, shape.value_bytes, shape.entries, shape.flags, 0, 0)
    try:
        return call(MAP_CREATE, struct.pack("=7I16s", *fields, name.encode()[:15]))[0]
    except OSError as error:
        refuse(error, "making the map %s" % name)


def unlimited() -> None:
    """Lift the limit of locked memory, of which kernels before 5.11 count maps, as far as that is allowed."""
    most = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    for limits in ((resource.RLIM_INFINITY,) * 2, (most, most)):
        try:
            resource.setrlimit(resource.RLIMIT_MEMLOCK, limits)
        except (ValueError, OSError):
            continue
        return


def update(map_fd: int, key: bytes, value: bytes) -> None:
    """Set an entry."""
    keys, values = ctypes.create_string_buffer(key, len(key)), ctypes.create_string_buffer(value, len(value))
    call(MAP_UPDATE, struct.pack("=IxxxxQQQ", map_fd, ctypes.addressof(keys), ctypes.addressof(values), 0))


def lookup(map_fd: int, key: bytes, value_bytes: int) -> bytes:
    """Return the value of an entry; OSError (ENOENT) where there is none."""
    keys, value = ctypes.create_string_buffer(key, len(key)), ctypes.create_string_buffer(value_bytes)
    call(MAP_LOOKUP, struct.pack("=IxxxxQQQ", map_fd, ctypes.addressof(keys), ctypes.addressof(value), 0))
    return value.raw


def processors() -> int:
    """Return how many processors the kernel may ever have: a value by processor has so many parts."""
    with open("/sys/devices/system/cpu/possible") as file:
        return max(int(number) for part in file.read().split(",") for number in part.split("-")) + 1


class Ring:
    """Records of one size that programs put into a ring of the kernel, read where they lie.

    The kernel maps two positions, each in a page of its own, and the ring twice behind them, so that what wraps around
    lies together (kernel's Documentation/bpf/ringbuf.rst). A record begins with RECORD_HEAD bytes of the kernel's.
    """

    def __init__(self, map_fd: int, ring_bytes: int, data_bytes: int) -> None:
        page = mmap.PAGESIZE
        self.ring_bytes, self.record_bytes = ring_bytes, RECORD_HEAD + (data_bytes + 7) // 8 * 8
        rights = mmap.PROT_READ | mmap.PROT_WRITE
        self.taken = memoryview(mmap.mmap(map_fd, page, mmap.MAP_SHARED, rights)).cast("Q")
        shown = memoryview(mmap.mmap(map_fd, page + 2 * ring_bytes, mmap.MAP_SHARED, mmap.PROT_READ, offset=page))
        self.given, self.records = shown[:8].cast("Q"), shown[page:]

    def ready(self) -> memoryview:
        """Return the records that are whole, which stay until they are released."""
        begin = self.taken[0] % self.ring_bytes
        found = self.records[begin : begin + self.given[0] - self.taken[0]]
        busy = found[BUSY_BYTE :: self.record_bytes].tobytes().find(BUSY)
        return found if busy < 0 else found[: busy * self.record_bytes]

    def release(self, size: int) -> None:
        """Give the room of so many bytes of the oldest records back."""
        self.taken[0] += size


def load_program(
    name: str, program: Program, maps: Mapping[str, int], symbols: Mapping[str, int], *, kind: int = SCHED_CLS
) -> int:
    """Return the descriptor of a loaded program, whose maps are given as descriptors by name, its symbols as numbers.

    That of a function of the kernel is its number among the kernel's types (BTF).
    """
    unlimited()
    code = bytearray(program.code)
    for place, of in program.maps.items():
        code[8 * place + 1] = code[8 * place + 1] & 0x0F | PSEUDO_MAP_FD << 4
        struct.pack_into("<i", code, 8 * place + 4, maps[of])
    for place, of in program.symbols.items():
        if code[8 * place] == CALL:
            code[8 * place + 1] = code[8 * place + 1] & 0x0F | PSEUDO_FUNCTION << 4
            struct.pack_into("<i", code, 8 * place + 4, symbols[of])
        else:  # a constant of 64 bits, in two instructions
            struct.pack_into("<I", code, 8 * place + 4, symbols[of] & 0xFFFFFFFF)
            struct.pack_into("<I", code, 8 * place + 12, symbols[of] >> 32)
    instructions = ctypes.create_string_buffer(bytes(code), len(code))
    license_, log = ctypes.create_string_buffer(program.license.encode()), ctypes.create_string_buffer(LOG_BYTES)
    where = ctypes.addressof(instructions), ctypes.addressof(license_)

    def attributes(level: int) -> bytes:
        logged = (level, LOG_BYTES, ctypes.addressof(log)) if level else (0, 0, 0)
        return struct.pack("=IIQQIIQII16s", kind, len(code) // 8, *where, *logged, 0, 0, name.encode()[:15])

    try:
        return call(PROG_LOAD, attributes(0))[0]
    except OSError as error:
        if error.errno in (errno.EPERM, errno.ENOSYS):
            refuse(error, "loading the program %s" % name)
        try:
            return call(PROG_LOAD, attributes(1))[0]
        except OSError as again:
            lines = log.value.decode("ascii", "replace").splitlines()
            refuse(again, "loading the program %s: %s" % (name, "; ".join(lines[-3:])))


def attach(program_fd: int, device: int, where: int) -> int:
    """Return the descriptor of a link: as long as it is open, the program sees the packets of a device (its index).

    `where` is TCX_INGRESS or TCX_EGRESS.
    """
    try:
        return call(LINK_CREATE, struct.pack("=IIII", program_fd, device, where, 0))[0]
    except OSError as error:
        refuse(error, "attaching a program to a device")


def refuse(error: OSError, what: str) -> NoReturn:
    """Raise what a failure means."""
    why = {
        errno.EPERM: "it takes root, or CAP_BPF and CAP_NET_ADMIN outside of user namespaces",
        errno.ENOSYS: "this kernel has no bpf(2)",
    }.get(error.errno or 0)
    raise OSError(error.errno, "%s: %s" % (what, why or error.strerror))


def usable() -> tuple[bool, str]:
    """Return whether this process may attach programs to devices by TCX, and why or why not."""
    try:
        program = load_program("look", Program(RETURN_0, {}, {}), {}, {})
    except OSError as error:
        return False, str(error.strerror)
    try:
        os.close(call(LINK_CREATE, struct.pack("=IIII", program, 0, TCX_INGRESS, 0))[0])
    except OSError as error:
        if error.errno == errno.ENODEV:  # it knows TCX, and there is no device of this number
            return True, "the kernel attaches programs to devices"
        return False, "the kernel is %s: TCX begins with Linux 6.6" % os.uname().release
    finally:
        os.close(program)
    return False, "the kernel attached a program to no device"
