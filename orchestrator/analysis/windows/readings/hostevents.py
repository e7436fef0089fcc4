"""What makes a host's times worthless in a window: pages that were swapped, processors that were throttled."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from orchestrator.analysis.traffic import throughput
from orchestrator.analysis.traffic.throughput import Kept
from orchestrator.store.manifests.records import Manifest

SWAP = ("swap.in_pages", "swap.out_pages")
THROTTLES = ("cpu.core_throttles", "cpu.package_throttles")


def swapped_pages(counters: Kept, manifest: Manifest, span: tuple[int, int]) -> Iterator[tuple[str, float]]:
    """Pages that each node swapped, NaN where nobody counted; pages are the kernel's, so one of its nodes suffices."""
    pages = {node: _growth(counters, node, SWAP, span) for node in manifest.nodes}
    kernels = manifest.kernels.nodes
    counted = {kernels.get(node, node) for node, count in pages.items() if not math.isnan(count)}
    for node, count in pages.items():
        if not math.isnan(count) or kernels.get(node, node) not in counted:
            yield node, count


def throttles(counters: Kept, manifest: Manifest, span: tuple[int, int]) -> Iterator[tuple[str, float]]:
    """How often processors of each node were throttled; NaN where nobody counted."""
    for node in manifest.nodes:
        yield node, _growth(counters, node, THROTTLES, span)


def _growth(counters: Kept, node: str, names: Sequence[str], span: tuple[int, int]) -> float:
    """By how much counters of a node as a whole grew together; NaN when none of them was sampled."""
    grown = [throughput.counter_growth(counters, node=node, port="", counter=name, span_ns=span) for name in names]
    known = [value for value in grown if not math.isnan(value)]
    return math.fsum(known) if known else math.nan
