"""A window as gates see it, of which a test says what matters to it; all else is empty."""

from __future__ import annotations

import math
from types import SimpleNamespace

import manifests
from made_tables import table

EMPTY = {
    **dict.fromkeys(("jobs", "training", "loads", "courses", "generated", "captures", "port_bytes", "rails"), ()),
    **dict.fromkeys(("congestion", "switch_ports", "processor_waits", "processor_use", "unreadable_captures"), ()),
}


def window(*, manifest=None, record=None, rows=None, grown=None, silent_collectors=None, validity=None, **figures):
    """`rows` of the run's tables by name, and by how much counters have `grown`, by node and name."""
    assert figures.keys() <= EMPTY.keys()
    return SimpleNamespace(
        **{**EMPTY, **figures},
        manifest=manifest or manifests.made(validity=validity or {}),
        record=record or manifests.window(),
        silent_collectors=silent_collectors or {},
        table=lambda name: (rows or {}).get(name, table(name, [])),
        growth=lambda node, counter, port="": (grown or {}).get((node, counter), math.nan),
    )


def judged(module, **given):
    """The verdicts of a module of gates on such a window."""
    return list(module.judge(window(**given)))
