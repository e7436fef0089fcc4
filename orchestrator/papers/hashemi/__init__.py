"""Hashemi et al.: parameter servers against all-reduce, tracing of transfers, and their order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.report.study.content import Content
    from orchestrator.store.rundir import Entry

NAME = "hashemi"
TITLE = (
    "W. Gropp, S. Hashemi, R. Campbell, Performance Analysis of Large Scale Deep Learning Systems, Blue Waters, 2017"
)
SHOWS = "Parameter servers against all-reduce over workers, traced transfers, and what their order is worth"


def content(entries: Sequence[Entry], folder: Path) -> Content:
    """Compare a traced training, scaling by both methods, and orders of transfers, as far as these runs have them."""
    from orchestrator.papers.hashemi import page

    return page.content(entries, folder)
