"""Makes inputs from good ones: edits of bytes, lines and words, and of the values of JSON."""

from __future__ import annotations

import json
import random
import re
import struct
from collections.abc import Callable, Sequence
from typing import Any

ODD = (
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    11,
    12,
    13,
    16,
    20,
    28,
    127,
    128,
    255,
    256,
    0x7FFF,
    0xFFFF,
    262_144,
    262_145,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFC,
    0xFFFFFFFF,
)
TEXT = (
    b"\t", b"\n", b" ", b": ", b"- ", b"{", b"}", b"[", b"]", b",", b"#", b'"', b"'", b"\\", b'"\\ud800"', b"\x00",
    b"\xff", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\r", b"\xc2\x85", "é".encode(), b"~", b"null", b"true", b"-1", b"0",
    b"9" * 20, b"9" * 5000, b"1e999", b".nan", b"NaN", b"-Infinity", b"0x1f", b"-0.0", b"9223372036854775808",
    b"[" * 2000, b'{"a":' * 2000, b"%s%n", b"../../etc/passwd", b"\x1b[2J",
)  # fmt: skip
_DEEP = "[" * 200 + "]" * 200
VALUES: tuple[Callable[[], Any], ...] = (
    lambda: None, lambda: True, lambda: False, lambda: 0, lambda: -1, lambda: 1.5, lambda: 1 << 62, lambda: 1 << 63,
    lambda: 10**400, lambda: -(10**30), lambda: 1e308, lambda: float("nan"), lambda: float("inf"), lambda: "",
    lambda: "x", lambda: "9" * 40, lambda: "\ud800", lambda: "a\0b\x1b[2J\n", lambda: "x" * 5000,
    list, dict, lambda: [[]], lambda: [None], lambda: {"": {}}, lambda: ["x"] * 300, lambda: json.loads(_DEEP),
)  # fmt: skip
MOST = 1 << 20  # bytes of an input: as much as the largest file that is read whole


def havoc(source: random.Random, seeds: Sequence[bytes], words: Sequence[bytes] = TEXT) -> bytes:
    """One of the seeds with a few edits."""
    data = bytearray(source.choice(seeds))
    for _ in range(source.choice((1, 1, 2, 3, 8, 40))):
        source.choice(_EDITS)(data, source, seeds, words)
    if source.random() < 0.002:
        _repeat_much(data, source)
    return bytes(data[:MOST])


def _place(data: bytearray, source: random.Random) -> int:
    """Somewhere, more often near the beginning, where headers are."""
    at = source.randrange(len(data) + 1)
    return min(at, 120) if source.random() < 0.3 else at


def _change_byte(data: bytearray, source: random.Random, *_: Any) -> None:
    at = _place(data, source)
    data[at : at + 1] = bytes([source.randrange(256)])


def _flip_bit(data: bytearray, source: random.Random, *_: Any) -> None:
    if data:
        data[source.randrange(len(data))] ^= 1 << source.randrange(8)


def _set_number(data: bytearray, source: random.Random, *_: Any) -> None:
    at, kind = _place(data, source), source.choice("HI")
    size = struct.calcsize(kind)
    data[at : at + size] = struct.pack(source.choice("<>") + kind, source.choice(ODD) & (1 << 8 * size) - 1)


def _delete(data: bytearray, source: random.Random, *_: Any) -> None:
    at = _place(data, source)
    del data[at : at + source.choice((1, 2, 5, 30))]


def _insert_word(data: bytearray, source: random.Random, _: Any, words: Sequence[bytes]) -> None:
    at = _place(data, source)
    data[at:at] = source.choice(words)


def _insert_noise(data: bytearray, source: random.Random, *_: Any) -> None:
    at = _place(data, source)
    data[at:at] = source.randbytes(source.randint(1, 40))


def _repeat(data: bytearray, source: random.Random, *_: Any) -> None:
    at = _place(data, source)
    data[at:at] = data[at : at + source.randint(1, 200)]


def _cut_off(data: bytearray, source: random.Random, *_: Any) -> None:
    if source.random() < 0.2:
        del data[_place(data, source) :]


def _splice(data: bytearray, source: random.Random, seeds: Sequence[bytes], _: Any) -> None:
    other, at = source.choice(seeds), _place(data, source)
    begin = source.randrange(len(other) + 1)
    data[at:at] = other[begin : begin + source.choice((3, 20, 200))]


def _move_line(data: bytearray, source: random.Random, *_: Any) -> None:
    lines = bytes(data).splitlines(keepends=True) or [b""]
    lines.insert(source.randrange(len(lines) + 1), source.choice(lines))
    data[:] = b"".join(lines)


def _exchange_word(data: bytearray, source: random.Random, _: Any, words: Sequence[bytes]) -> None:
    found = list(re.finditer(rb"[\w.-]+", bytes(data)))
    if found:
        word = source.choice(found)
        data[word.start() : word.end()] = source.choice((source.choice(words), source.choice(found)[0]))


_EDITS = (
    *(_change_byte, _flip_bit, _set_number, _delete, _insert_word, _insert_noise, _repeat, _cut_off, _splice),
    *(_move_line, _exchange_word, _exchange_word),
)


def _repeat_much(data: bytearray, source: random.Random) -> None:
    at = source.randrange(len(data) + 1)
    piece = data[at : at + source.choice((1, 2, 4, 30))]
    data[at:at] = piece * ((MOST - len(data)) // max(1, len(piece)))


# Values


def value(source: random.Random, good: Any, others: Sequence[Any] = ()) -> Any:
    """Good data with a few values of it changed; `others` are values that mean something where it is read."""
    changed = json.loads(json.dumps(good))
    for _ in range(source.choice((1, 1, 1, 2, 4))):
        changed = _changed(source, changed, others)
    return changed


def text(source: random.Random, data: Any) -> bytes:
    """Data as JSON, which is YAML too."""
    return json.dumps(data, ensure_ascii=source.random() < 0.9).encode(errors="surrogatepass")


def _changed(source: random.Random, data: Any, others: Sequence[Any]) -> Any:
    if isinstance(data, dict | list) and data and source.random() < 0.85:
        keys = list(data) if isinstance(data, dict) else range(len(data))
        key = source.choice(keys)
        match source.randrange(12):
            case 0:
                del data[key]
            case 1 if isinstance(data, list):
                data.extend([data[key]] * source.choice((1, 2, 300)))
            case 1:
                data[str(_strange(source, others))[:300]] = data[key]
            case 2:
                data[key], other = _strange(source, others), source.choice(keys)
                data[other] = data[key]
            case _:
                data[key] = _changed(source, data[key], others)
        return data
    return _strange(source, others)


def _strange(source: random.Random, others: Sequence[Any]) -> Any:
    if others and source.random() < 0.4:
        return json.loads(json.dumps(source.choice(others)))
    return source.choice(VALUES)()
