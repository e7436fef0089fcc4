"""Tell the person at the terminal what goes on: a live line where there is a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from typing import TextIO

from orchestrator.core.screen import terminal
from orchestrator.core.units import bytes_text, duration_text, rate_text

PLAIN_EVERY_S = 5.0
LIVE_EVERY_S = 0.1
USUAL_COLUMNS = 80
BAR = 20  # letters


Whole = Callable[[int], str]  # how far all is of which a run is a part, so many of its windows being measured


class Progress:
    """One line that is rewritten on a terminal; on anything else a line a phase, and one every few seconds."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = terminal.plain(sys.stderr) if stream is None else stream
        self._live = self._stream.isatty()
        self._whole: Whole | None = None
        self._windows = 0  # of the run that were measured
        self._width = 0
        self._last = 0.0
        self._phase = ""
        self._began = time.monotonic()

    def part_of(self, whole: Whole) -> None:
        """Show that the runs that follow are a part of something larger."""
        self._whole = whole

    def run(self, text: str) -> None:
        """Show that a run begins."""
        self._windows = 0
        self.say(text)

    def window(self, number: int, of: int, name: str) -> None:
        """Show that a window of several begins, the first of them as number 1."""
        self._windows = number - 1
        self.say(f"  window {number} of {of}: {name}" + (f" ({self._whole_text()})" if self._whole else ""))

    def _whole_text(self) -> str:
        return self._whole(self._windows) if self._whole else ""

    def phase(self, name: str) -> None:
        """Show that a phase begins."""
        self._phase = name
        self._began = time.monotonic()
        self._last = 0.0
        if self._live:
            self._rewrite(f"{name} ...")
        else:
            self._print(f"  {name}")

    def iterations(
        self, done: int, of: int | None, *, last_s: float, left_s: float | None, rate_bps: float | None
    ) -> None:
        """How far a window is: its iterations, the last one's seconds, the load at its receivers, the time left."""
        now = time.monotonic()
        if now - self._last < (LIVE_EVERY_S if self._live else PLAIN_EVERY_S):
            return
        self._last = now
        parts = [f"iteration {done}" + (f"/{of}" if of else ""), f"{last_s * 1e3:.0f} ms each"]
        if left_s is not None:
            parts.append(f"about {duration_text(max(1, round(left_s)))} left")
        if rate_bps is not None:
            parts.append(f"receivers get {rate_text(float(f'{rate_bps:.3g}'))}/s")
        line = f"{self._phase}: " + ", ".join(parts)
        if self._live:
            self._rewrite(line)
        else:
            self._print("    " + line)

    def share(self, done: int, of: int, name: str) -> None:
        """Show a bar of how many bytes of all are done, and the time left at the rate so far; on a terminal alone."""
        now = time.monotonic()
        if not self._live or (now - self._last < LIVE_EVERY_S and done < of):
            return
        self._last = now
        share = done / of if of else 1.0
        parts = [f"[{'#' * int(share * BAR):-<{BAR}}] {share:.0%}", f"{bytes_text(done)} of {bytes_text(of)}"]
        if 0 < done < of:
            left_s = (now - self._began) * (of - done) / done
            parts.append(f"about {duration_text(max(1, round(left_s)))} left")
        self._rewrite(f"{', '.join(parts)}: {name}")

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self._clear()
        self._print(text)

    def done(self) -> None:
        """Nothing more comes: leave a clean line."""
        self._clear()

    def _rewrite(self, line: str) -> None:
        whole = f"{self._whole_text()} | " if self._whole else ""
        shown = self._fitting(f"  {whole}{line}", f" [{time.monotonic() - self._began:.0f} s]")
        self._write("\r" + shown.ljust(self._width))
        self._width = len(shown)

    def _fitting(self, line: str, ending: str) -> str:
        """Both in one row of the terminal: a longer line would wrap, and stay behind when it is rewritten."""
        try:
            columns = os.get_terminal_size(self._stream.fileno()).columns
        except (OSError, ValueError):
            columns = 0
        room = (columns or USUAL_COLUMNS) - 1  # in the last column some terminals wrap already
        line = terminal.line(line)
        if len(line) + len(ending) > room:
            line = line[: max(0, room - len(ending) - 3)] + "..."
        shown = (line + ending)[:room]
        self._width = min(self._width, room)  # the terminal may have become narrower
        return shown

    def _clear(self) -> None:
        if self._live and self._width:
            self._write("\r" + " " * self._width + "\r")
            self._width = 0

    def _print(self, line: str) -> None:
        self._write(terminal.escaped(line) + "\n")

    def _write(self, text: str) -> None:
        """Without an error: steps of putting things back are told, too, and a closed terminal must not end them."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()
