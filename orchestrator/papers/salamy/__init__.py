"""Salamy's thesis: training beside cross traffic."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.report.study.content import Content
    from orchestrator.store.rundir import Entry

NAME = "salamy"
TITLE = "J. Salamy, Network Requirements for Distributed Machine Learning Training in the Cloud, MIT, February 2022"
SHOWS = "Iteration times of training beside iperf and web-search traffic"


def content(entries: Sequence[Entry], folder: Path) -> Content:
    """Compare every figure and table that these runs have curves for with the printed ones."""
    from orchestrator.papers.salamy import page

    return page.content(entries, folder)
