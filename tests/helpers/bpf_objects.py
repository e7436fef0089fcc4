"""Byte code for the kernel as hosts get it: made of C by clang, `python -m tests.helpers.bpf_objects` writes it anew.

A file NAME.bpf.json beside NAME.c has the version of clang that made it, the hash of the source, the shape of each
map, the license that the kernel is told, and each program's instructions with the maps that these load and the symbols
that only the loader knows.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

AGENTS = Path(__file__).parents[2] / "orchestrator/agents"
SOURCES = sorted(AGENTS.glob("*.c"))
FLAGS = ("-O2", "-Wall", "-Wextra", "-Werror", "-target", "bpfel", "-mcpu=v2", "-c")
SYMTAB, REL = 2, 9
SHAPE = struct.Struct("<5I")


def clang() -> str:
    said = subprocess.run(["clang", "--version"], check=True, capture_output=True, text=True).stdout
    found = re.search(r"version (\d+)", said)
    assert found, said
    return found[1]


def target(source: Path) -> Path:
    return source.with_suffix(".bpf.json")


def built(source: Path) -> dict[str, Any]:
    """Return what the file of a source holds, made now."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "out.o"
        subprocess.run(["clang", *FLAGS, str(source), "-o", str(made)], check=True)
        found = parsed(made.read_bytes())
    return {"clang": clang(), "source": hashlib.sha256(source.read_bytes()).hexdigest(), **found}


def parsed(data: bytes) -> dict[str, Any]:
    """Return license, maps and programs of an object file (ELF64, little endian)."""
    at, count, names_at = struct.unpack_from("<Q", data, 40)[0], *struct.unpack_from("<HH", data, 60)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, at + 64 * place) for place in range(count)]

    def text(table: int, offset: int) -> str:
        begin = headers[table][4] + offset
        return data[begin : data.index(b"\0", begin)].decode()

    def content(place: int) -> bytes:
        return data[headers[place][4] : headers[place][4] + headers[place][5]]

    names = [text(names_at, header[0]) for header in headers]
    table = next(place for place, header in enumerate(headers) if header[1] == SYMTAB)
    symbols = [
        (text(headers[table][6], symbol[0]), symbol[3], symbol[4])
        for symbol in struct.iter_unpack("<IBBHQQ", content(table))
    ]
    shapes = names.index("maps")
    maps = {
        name: list(SHAPE.unpack_from(content(shapes), value))
        for name, section, value in symbols
        if section == shapes and name
    }
    programs: dict[str, Any] = {}
    for place, header in enumerate(headers):
        if header[2] & 4 and header[5]:  # instructions that run
            programs[names[place]] = {"code": base64.b64encode(content(place)).decode(), "maps": {}, "symbols": {}}
    for place, header in enumerate(headers):
        if header[1] == REL and names[header[7]] in programs:
            for offset, info in struct.iter_unpack("<QQ", content(place)):
                name, section, _ = symbols[info >> 32]
                programs[names[header[7]]]["maps" if section == shapes else "symbols"][str(offset // 8)] = name
    license_ = content(names.index("license")).rstrip(b"\0").decode()
    return {"license": license_, "maps": maps, "programs": programs}


def main() -> int:
    for source in SOURCES:
        target(source).write_text(json.dumps(built(source), indent=1) + "\n")
        print(target(source))
    return 0


if __name__ == "__main__":
    sys.exit(main())
