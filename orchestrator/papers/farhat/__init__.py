"""Farhat and Ghobadi: the traffic between workers of Horovod."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.report.study.content import Content
    from orchestrator.store.rundir import Entry

NAME = "farhat"
TITLE = "A. Farhat and M. Ghobadi, Communication Patterns in Distributed Deep Learning, MIT"
SHOWS = "Data an iteration, rings, durations and overlap of sixteen workers of Horovod"


def content(entries: Sequence[Entry], folder: Path) -> Content:
    """Compare every finding of the paper with these runs."""
    from orchestrator.papers.farhat import page

    return page.content(entries, folder)
