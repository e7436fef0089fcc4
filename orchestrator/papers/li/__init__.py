"""Li et al.: patterns and overhead of communication, and a model that predicts both."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.report.study.content import Content
    from orchestrator.store.rundir import Entry

NAME = "li"
TITLE = "W. Li et al., Understanding Communication Characteristics of Distributed Training, APNet 2024"
SHOWS = "message sizes, heatmaps by kind, experts, shares of an iteration, and a model that predicts it"


def content(entries: Sequence[Entry], folder: Path) -> Content:
    """Compare every figure and table of the paper with these runs."""
    from orchestrator.papers.li import page

    return page.content(entries, folder)
