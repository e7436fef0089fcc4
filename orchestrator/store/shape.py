"""What a manifest has to look like before anything is read from it: a store may be somebody else's, or damaged.

Fields that are not told here are checked where they are read. A run that was sealed by an older orch may lack fields,
but what is there is of its type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from orchestrator.core import safepath
from orchestrator.core.errors import UnsafePath

Shape = Callable[[object], bool]

MOST = (1 << 63) - 1  # what tables hold as a whole number
MOST_REAL = 1e300  # far enough from the largest that sums and products with a scale are numbers still


def whole(value: object) -> bool:
    return type(value) is int and abs(value) <= MOST


def number(value: object) -> bool:
    return (type(value) is int and abs(value) <= MOST) or (type(value) is float and abs(value) < MOST_REAL)


def real(value: object) -> bool:
    """A number, or none that could be told."""
    return value is None or number(value) or (type(value) is float and math.isnan(value))


def flag(value: object) -> bool:
    return type(value) is bool


def text(value: object) -> bool:
    """Text that can be written down: JSON can spell halves of characters."""
    return isinstance(value, str) and (value.isascii() or not any("\ud800" <= one <= "\udfff" for one in value))


def name(value: object) -> bool:
    """What a folder and a page may be called by."""
    try:
        safepath.segment(value)
    except UnsafePath:
        return False
    return True


def maybe(shape: Shape) -> Shape:
    return lambda value: value is None or shape(value)


def each(shape: Shape) -> Shape:
    return lambda value: isinstance(value, list) and all(map(shape, value))


def by_name(shape: Shape) -> Shape:
    return lambda value: isinstance(value, dict) and all(text(key) and shape(one) for key, one in value.items())


def record(needed: Mapping[str, Shape], others: Mapping[str, Shape]) -> Shape:
    """An object that has the first fields, and may have the others; of any more nothing is said."""
    known = {**others, **needed}

    def holds(value: object) -> bool:
        return (
            isinstance(value, dict)
            and needed.keys() <= value.keys()
            and all(key not in known or known[key](one) for key, one in value.items())
        )

    return holds


def exactly(fields: Mapping[str, Shape]) -> Shape:
    """An object with these fields and no others."""
    holds = record(fields, {})
    return lambda value: holds(value) and isinstance(value, dict) and len(value) == len(fields)


_LOAD = record(
    {"source": text, "src": text, "dst": text, "requested_bps": number}, {"achieved_bps": real}
)  # fmt: skip
_TRAINING = record(
    {"job": text, "iterations": whole, "mean_s": real, "p50_s": real, "p99_s": real},
    {"sent_bytes": real, "theory_bytes": real, **{
        f"{which}_{end}_s": real for which in ("mean", "p50", "p99") for end in ("low", "high")}},
)  # fmt: skip
_VARIATION = record(
    {"job": text, "rank": whole, "iterations": whole, "orders": whole,
     **dict.fromkeys(("cv", "p50_s", "p95_s", "p99_s", "max_s", "straggler_share", "overlapped", "efficiency"), real)},
    {},
)  # fmt: skip
_GATE = record({"name": text, "message": text, "passed": maybe(flag)}, {"required": flag})
_WINDOW = record(
    {"window": text, "start_ns": whole, "end_ns": whole, "valid": flag, "reasons": each(text), "loads": each(_LOAD),
     "training": each(_TRAINING)},
    {"gates": each(_GATE), "variation": each(_VARIATION)},
)  # fmt: skip
_JOB = record(
    {"name": text, "workload": text, "ranks": each(record({}, {"rank": whole, "node": text}))},
    {"model": maybe(text), "compute": maybe(text)},
)
_TOPOLOGY = record(
    {}, {"kind": text, "nodes": each(record({"name": text, "kind": text}, {"address": text, "device": text}))}
)
_POINT = exactly({"point": text, "values": by_name(lambda _: True), "repetition": whole, "fresh": flag})
_OWNER = record({}, {"host": text, "boot": text, "pids": text})

_KNOWN = record(
    {"run": name, "experiment": name, "outcome": text},
    {
        "stage": maybe(text), "error": maybe(text), "notes": each(text), "reasons": each(text), "valid": flag,
        "began_ns": whole, "ended_ns": whole, "scale": whole, "repetition": whole, "seed": whole, "point": maybe(text),
        "overhead_s": real, "phases": by_name(number), "git": maybe(record({}, {"commit": maybe(text)})),
        "controller": _OWNER, "topology": _TOPOLOGY, "jobs": each(_JOB), "windows": each(_WINDOW),
        "sweep": record({"id": text, "name": text, "points": by_name(_POINT)}, {}),
        "capture": maybe(by_name(whole)),
    },
)  # fmt: skip


def manifest(value: object) -> bool:
    """Whether this is a manifest: whatever is read from it by those who list, tell and query runs is of its type."""
    if not isinstance(value, dict) or not _KNOWN(value):
        return False
    return not value.get("windows") or {"scale", "valid"} <= value.keys()
