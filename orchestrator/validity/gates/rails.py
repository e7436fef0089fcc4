"""Gates `rail` and `rdma`: each rail carried what it should of a training, by captures or by counters of RDMA."""

from __future__ import annotations

import math
from collections.abc import Iterator

from orchestrator.parts.protocols import end_name
from orchestrator.store.manifests.records import Gate
from orchestrator.validity.declaration import GateSpec, verdict
from orchestrator.validity.window import THEORY_TOLERANCE, MeasuredWindow, RailBytes

NAME = "rails"
ORDER = 140
GATES = (
    GateSpec(
        name="rail",
        passes="each rail sent what its algorithm must send",
        limit="2 %, and what may fall on either side of the window's ends",
        required=False,
        remedy="Look for other traffic on that rail, and at the mapping of devices to rails in the inventory.",
    ),
    GateSpec(
        name="rdma",
        passes="what RDMA counters saw is what the algorithm must send, where captures saw nothing",
        limit="2 %, and at most 98 bytes of headers a packet",
        required=False,
        remedy="Look for other traffic on the device.",
    ),
)


def judge(window: MeasuredWindow) -> Iterator[Gate]:
    """Give a verdict for each rail against theory, where there are several; and for RDMA, which no capture sees."""
    several = [row for row in window.rails if not math.isnan(row.theory_bytes)]
    count = max((row.rail for row in several), default=0) + 1
    for row in several:
        name = f"job {row.job}: {end_name(row.host, row.rail)} ({row.device})"
        if count > 1 and row.sent_bytes > 0:
            yield _of_capture(name, row)
        elif row.rdma_bytes > 0 and not row.sent_bytes > 0:
            yield _of_rdma(name, row)


def _of_capture(name: str, row: RailBytes) -> Gate:
    off = row.sent_bytes / row.theory_bytes - 1 if row.theory_bytes else math.inf
    limit = THEORY_TOLERANCE + row.edges
    text = f"{name} sent {row.sent_bytes / 1e6:.5g} MB an iteration, {off:+.1%} of theory"
    text += "" if abs(off) <= limit else f": off by more than {limit:.3g} of it"
    return verdict("rail", abs(off) <= limit, text, measured=off, limit=limit, required=False)


def _of_rdma(name: str, row: RailBytes) -> Gate:
    limit = THEORY_TOLERANCE
    headers = 0.0 if math.isnan(row.headers) else row.headers
    least, most = (row.rdma_bytes - headers) * (1 - limit), row.rdma_bytes * (1 + limit)
    off = row.rdma_bytes / row.theory_bytes - 1 if row.theory_bytes else math.inf
    text = f"{name} sent {row.rdma_bytes / 1e6:.5g} MB an iteration by RDMA, {off:+.1%} of theory"
    text += f"; at most {headers / 1e6:.3g} MB of it are headers"
    return verdict("rdma", least <= row.theory_bytes <= most, text, measured=off, limit=limit, required=False)
