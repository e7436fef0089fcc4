"""Zerwas et al.: traffic of training frameworks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.report.study.content import Content
    from orchestrator.store.rundir import Entry

NAME = "zerwas"
TITLE = (
    "J. Zerwas, K. Aykurt, S. Schmid, A. Blenk, Network Traffic Characteristics of Machine Learning Frameworks Under "
    "the Microscope, CNSM 2021"
)
SHOWS = "Volume, patterns, flows and throughput of TensorFlow, Horovod and KungFu"


def content(entries: Sequence[Entry], folder: Path) -> Content:
    """Compare every figure and table that these runs have points for with the printed ones."""
    from orchestrator.papers.zerwas import page

    return page.content(entries, folder)
