"""The interface of a paper for `orch study`: a package with a name, a title, and a page made of runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from orchestrator.report.study.content import Content
    from orchestrator.store.rundir import Entry


class Paper(Protocol):
    """A folder of `orchestrator/papers`; its `__init__` imports nothing that is slow, since `orch study` lists all."""

    NAME: str
    """The folder's name, which study files name under `paper`."""
    TITLE: str
    """Authors, title, place and year."""
    SHOWS: str
    """What the paper measured, in one line."""

    def content(self, entries: Sequence[Entry], folder: Path) -> Content:
        """Return the page of these runs, whose figures are written to `folder`.

        Any part of the study's runs gives a page: what they lack is a comparison `not_measured`. StoreError where they
        hold nothing of the paper.
        """
