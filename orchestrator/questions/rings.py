"""Rings of training traffic, recovered from bytes alone, against the order in which the ranks were launched."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from orchestrator.analysis.traffic import pattern
from orchestrator.questions.registry import step
from orchestrator.questions.rows import Rows, grouped

_OF_EDGES = ("src", "dst", "src_worker", "dst_worker", "payload_bytes", "layer2_bytes", "theory_bytes")


@step
def rings(rows: Rows, *, of: str = "payload_bytes") -> Rows:
    """Return the pattern of the bytes between hosts (rows of `edges`): a row for all pairs alike in other columns.

    `shape` is one of analysis/traffic/pattern.py ("ring", "full mesh", ...), `score` (0 to 1) how well it fits. Of a
    ring `around` has the hosts in the order of sending, from that of rank 0 on; `direction` tells how it runs against
    the launch order, and `in_order` whether each host's neighbours were launched before and after it, either way round
    (false of other shapes, and where ranks share a host: bytes do not tell these apart). `back` is the payload on the
    edges of the pattern the other way, as a share of that along them (NaN without edges).
    """
    keys = [name for name in (rows[0] if rows else ()) if name not in (*_OF_EDGES, of)]
    return [
        {**dict(zip(keys, values, strict=True)), **_pattern(mine, of)} for values, mine in grouped(rows, keys).items()
    ]


def _pattern(rows: Rows, of: str) -> dict[str, Any]:
    workers = {row[f"{end}_worker"]: row[end] for row in rows for end in ("src", "dst") if row[f"{end}_worker"]}
    launched = [workers[number] for number in sorted(workers)]
    hosts = [*launched, *sorted({row[end] for row in rows for end in ("src", "dst")} - set(launched))]
    place = {host: number for number, host in enumerate(hosts)}
    bytes_of = np.zeros((len(hosts), len(hosts)))
    for row in rows:
        bytes_of[place[row["src"]], place[row["dst"]]] += np.nan_to_num(row[of])
    found = pattern.infer(bytes_of)
    alone = rows[0].get("ranks", len(launched)) == len(launched)
    direction = pattern.order_among(found, range(len(launched))) if alone else ""
    along = float(sum(bytes_of[edge] for edge in found.edges))
    back = float(sum(bytes_of[after, before] for before, after in found.edges))
    ring = found.shape in ("ring", "ring both ways")
    return {
        "shape": found.shape,
        "score": found.score,
        "around": " → ".join(hosts[host] for host in found.hosts) if ring else "",
        "direction": direction,
        "in_order": direction in (pattern.IN_ORDER, pattern.AGAINST_ORDER),
        "back": back / along if along else math.nan,
    }
