"""Show what is watched at a terminal, by rich; NO_COLOR is respected by it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from orchestrator.core.screen import terminal
from orchestrator.watching.view import Shown, View, sparkline

_STYLES = {"ok": "green", "FAIL": "bold red", "note": "yellow"}
_BAR = 30
_EVERY_S = 1.0  # between two drawings of a phase: each takes 10 ms of a processor


class Screen:
    """A view that is drawn over the one before it."""

    def __init__(self, live: Live) -> None:
        self._live = live
        self._phase = ""
        self._drawn = -_EVERY_S  # when, by the monotonic clock

    def show(self, shown: View) -> None:
        """Draw a view, if it is time to, or another phase or the end has come; another one follows within a second."""
        now = time.monotonic()
        if now - self._drawn < _EVERY_S and shown.phase == self._phase and not shown.ended:
            return
        self._drawn, self._phase = now, shown.phase
        width = self._live.console.width
        self._live.update(drawn(shown, width), refresh=True)


@contextmanager
def opened() -> Iterator[Screen]:
    """Draw on standard output until left; the last view stays."""
    console = Console(file=terminal.plain(sys.stdout), highlight=False)
    with Live(console=console, auto_refresh=False) as live:
        yield Screen(live)


def drawn(shown: View, width: int) -> RenderableType:
    """Return a view for a terminal of so many columns; whatever a run says is text, never markup."""
    parts: list[RenderableType] = [_text(shown.title, "bold")]
    parts += [_text(shown.label)] if shown.label else []
    parts += [_text(shown.verdict, "bold")] if shown.verdict else []
    if shown.phase:
        line = Text().append(terminal.line(f"{shown.phase} [{shown.elapsed_s} s]"), "cyan")
        if shown.share is not None:
            done = round(_BAR * shown.share)
            line.append("  " + "━" * done, "green").append("─" * (_BAR - done))
        parts.append(line.append(f"  {terminal.line(shown.progress)}"))
    for curve in (*shown.curves, *shown.course):
        parts += [
            Text(),
            _text(f"{curve.name}: {curve.text}"),
            Text(sparkline(curve.values, max(10, width - 1)), "blue"),
        ]
    parts += [_text(line) for line in (*shown.waits, *shown.causes)]
    parts += [_text(failure, "bold red") for failure in shown.failures]
    if shown.gates:
        parts += [Text(), _text("Gates, as they would be judged now", "bold")]
    for gate in shown.gates:
        parts.append(Text().append(f"  {gate.mark:<5}", _STYLES.get(gate.mark)).append(terminal.line(gate.text)))
    for table in shown.tables:
        parts += [Text(), _table(table)]
    return Group(*parts)


def _table(shown: Shown) -> Table:
    table = Table(title=_text(shown.title, "bold"), title_justify="left", box=None, pad_edge=False)
    for place, name in enumerate(shown.head):
        table.add_column(_text(name, "dim"), justify="right" if place else "left")
    for row in shown.rows:
        table.add_row(*map(_text, row))
    return table


def _text(text: str, style: str = "") -> Text:
    return Text(terminal.line(text), style)
