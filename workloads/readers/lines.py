"""Lines of JSON as rank programs write them: the records that are whole, and the values that tables can hold.

The last line may be cut where a rank was killed, and any other may be damaged: a reader leaves such lines out.
A file is read line by line, so that it costs what its reader keeps of it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path

from orchestrator.core.opendata import JsonObject
from orchestrator.core.paths import safepath

LONGEST = 1 << 22  # bytes of a line: some 50,000 spans of an iteration


def records(path: Path) -> Iterator[JsonObject]:
    """The objects in the lines of a file, in order; none where there is no file. ValueError at a line above LONGEST."""
    try:
        file = safepath.opened(path)
    except FileNotFoundError:
        return
    with file:
        while line := file.readline(LONGEST + 1):
            if len(line) > LONGEST:
                raise ValueError(f"{path.name} has a line of more than {LONGEST >> 20} MiB")
            try:
                record = json.loads(line.decode("utf-8", "replace"))
            except (ValueError, RecursionError):
                continue
            if isinstance(record, dict):
                yield record


def objects(text: str) -> Iterator[JsonObject]:
    """The objects of a JSON array of which the end may be missing."""
    decoder, at = json.JSONDecoder(), text.find("{")
    while at >= 0:
        try:
            found, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return
        if isinstance(found, dict):
            yield found
        at = text.find("{", at)


def is_whole(value: object) -> bool:
    """Whether it is a count, a place or an instant; a column holds 64 bits, of which one is left for sums."""
    return type(value) is int and 0 <= value < 2**62


def is_real(value: object) -> bool:
    """Whether it is a finite number, which a float can hold."""
    return (type(value) is int and abs(value) < 2**62) or (type(value) is float and math.isfinite(value))


def is_text(value: object) -> bool:
    """Whether it is text that can be written down: JSON can spell halves of characters."""
    return isinstance(value, str) and (value.isascii() or not any("\ud800" <= one <= "\udfff" for one in value))
