"""Carry out what conditions do within a window, such as a link that goes down and comes up again."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import replace

from orchestrator.execution.actions.changes import Changes
from orchestrator.parts.launch import Change, During
from orchestrator.store.manifests.records import Event


class WindowEvents:
    """The events of one window; `records` says what came of them."""

    def __init__(self, planned: Iterable[Change], changes: Changes, window: str) -> None:
        self._changes = changes
        self._of: dict[During, list[Change]] = {}
        for change in planned:
            if change.during is not None and change.during.window in ("", window):
                self._of.setdefault(change.during, []).append(change)
        self._records = {
            during: Event(window=window, event=during.event, begin_s=during.begin_s, end_s=during.end_s)
            for during in self._of
        }
        self._origin_s = math.inf

    @property
    def records(self) -> tuple[Event, ...]:
        return tuple(self._records.values())

    @property
    def next_due(self) -> float:
        """The instant of the next event on the monotonic clock; infinity where there is none."""
        due = [
            self._origin_s + (during.begin_s if event.began_ns is None else during.end_s)
            for during, event in self._records.items()
            if event.ended_ns is None
        ]
        return min(due, default=math.inf)

    def begin(self, at_s: float) -> None:
        """Set the window's beginning, an instant of the monotonic clock."""
        self._origin_s = at_s

    def carry_out(self) -> None:
        """Make the changes that are due, and take back those whose time is over."""
        now = time.monotonic() - self._origin_s
        for during, event in self._records.items():
            if event.began_ns is None and now >= during.begin_s:
                self._changes.apply(self._of[during])
                self._records[during] = replace(event, began_ns=time.time_ns())
            elif event.began_ns is not None and event.ended_ns is None and now >= during.end_s:
                self._take_back(during)

    def end(self) -> None:
        """Take back what outlasts the window."""
        for during, event in self._records.items():
            if event.began_ns is not None and event.ended_ns is None:
                self._take_back(during)

    def _take_back(self, during: During) -> None:
        self._changes.undo(self._of[during])
        self._records[during] = replace(self._records[during], ended_ns=time.time_ns())
