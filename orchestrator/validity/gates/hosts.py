"""Gates `swap`, `throttle` and `disk`: no host was in a state that makes its times worthless."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from orchestrator.parts.collectors import cpu
from orchestrator.parts.registry import COLLECTOR
from orchestrator.store.manifests.records import Gate
from orchestrator.validity.declaration import GateSpec, verdict
from orchestrator.validity.window import MeasuredWindow

NAME = "hosts"
ORDER = 100
SWAP = ("swap.in_pages", "swap.out_pages")
THROTTLES = ("cpu.core_throttles", "cpu.package_throttles")
COUNTERS = (*SWAP, *THROTTLES)
LEAST_FREE_BYTES = 256e6
GATES = (
    GateSpec(
        name="swap",
        passes="no host swapped",
        limit="no page",
        remedy="Free memory on the host. The collector `cpu` counts pages.",
    ),
    GateSpec(
        name="throttle",
        passes="no host throttled its processors",
        limit="never",
        remedy="Look at the host's cooling and power limits.",
    ),
    GateSpec(name="disk", passes="hosts had free disk space", limit="256 MB", remedy="Free space under `work:`."),
)


def judge(window: MeasuredWindow) -> Iterator[Gate]:
    """Give the verdicts for each node, one gate after the other."""
    yield from _swap(window)
    for node in window.manifest.nodes:
        times = _growth(window, node, THROTTLES)
        if not math.isnan(times):
            text = (
                f"{node}: its processors were throttled {times:.0f} times" if times > 0 else f"{node}: did not throttle"
            )
            yield verdict("throttle", times <= 0, text, measured=times, limit=0)
    for node, free in window.manifest.free_disk_bytes.items():
        text = f"{node}: {free / 1e6:.0f} MB of disk were free"
        text += f", less than {LEAST_FREE_BYTES / 1e6:.0f} MB" if free < LEAST_FREE_BYTES else ""
        yield verdict("disk", free >= LEAST_FREE_BYTES, text, measured=float(free), limit=LEAST_FREE_BYTES)


def _swap(window: MeasuredWindow) -> Iterator[Gate]:
    """Judge pages that were swapped; they are the kernel's, so that one of its nodes that counts suffices."""
    manifest = window.manifest
    counting = manifest.nodes_running(COLLECTOR + cpu.NAME)
    pages = {node: _growth(window, node, SWAP) for node in manifest.nodes}
    kernel = {node: manifest.kernels.nodes.get(node, node) for node in pages}
    counted = {kernel[node] for node, count in pages.items() if not math.isnan(count)}
    for node, count in pages.items():
        if not math.isnan(count):
            text = f"{node}: swapped {count:.0f} pages in the window" if count > 0 else f"{node}: did not swap"
            yield verdict("swap", count <= 0, text, measured=count, limit=0)
        elif kernel[node] not in counted:
            asked = node in counting
            why = "the collector `cpu` did not say it" if asked else "the collector `cpu` counts it"
            text = f"{node}: not known whether it swapped ({why})"
            yield verdict("swap", None, text, measured=count, limit=0, required=asked)


def _growth(window: MeasuredWindow, node: str, names: Sequence[str]) -> float:
    """Return by how much counters of a node grew together; NaN when none of them was sampled."""
    known = [grown for name in names if not math.isnan(grown := window.growth(node, name))]
    return math.fsum(known) if known else math.nan
