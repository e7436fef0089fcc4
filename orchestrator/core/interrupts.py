"""Handle Ctrl-C: the first signal ends the current work, the next one cuts the grace periods of cleaning up."""

from __future__ import annotations

import signal
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Any

from orchestrator.core.errors import Interrupted

LOOK_S = 0.05


@dataclass(slots=True)
class Twice:
    """A long action that only a second signal ends.

    `tell` is called at the first signal; `since` are the signals that came before the action began.
    """

    since: int
    tell: Callable[[], None]
    told: bool = False


class Interrupts:
    """While entered, SIGINT, SIGTERM and SIGHUP raise Interrupted in the main thread, once; then they set `hurry`.

    `hurry` is a plain flag, and not an event: the handler may run while this very thread holds an event's lock.
    While the main thread starts another one, Interrupted waits a moment (a timer, SIGALRM): `threading` takes it for a
    thread that did not start, and forgets one that runs.
    """

    def __init__(self) -> None:
        self.hurry = False
        self.signals = 0  # that have come, all of them
        self._unwinding = False
        self._waiting = 0  # the signal that came while a thread was started
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        tempfile.gettempdir()  # tries a file when it is first called, which an exception at that moment would leave
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._before[number] = signal.signal(number, self._on_signal)
        self._before[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._on_timer)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def unwinding(self) -> None:
        """Stop raising Interrupted: from here on a signal only shortens grace periods, and cleaning up goes on."""
        self._unwinding = True

    @property
    def is_unwinding(self) -> bool:
        return self._unwinding

    @property
    def grace(self) -> float:
        """The factor on grace periods: 0 after a second signal, else 1."""
        return 0.0 if self.hurry else 1.0

    def ended_by(self, twice: Twice) -> bool:
        """Return whether the action of `twice` is to end; at the first signal since it began, call its `tell`."""
        came = self.signals - twice.since
        if came and not twice.told:
            twice.told = True
            twice.tell()
        return came > 1

    def rest(self, until: float) -> None:
        """Wait until an instant of the monotonic clock, or a second signal."""
        while not self.hurry and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, LOOK_S))

    def _on_timer(self, _number: int, frame: FrameType | None) -> None:
        if self._waiting:
            self._on_signal(self._waiting, frame)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._unwinding:
            self.signals += 1
            self.hurry = True
            return
        if _starts_a_thread(frame):
            self._waiting = number
            signal.setitimer(signal.ITIMER_REAL, LOOK_S)
            return
        self.signals += 1
        self._unwinding = True
        raise Interrupted(f"stopped by {signal.Signals(number).name}")


def _starts_a_thread(frame: FrameType | None) -> bool:
    while frame is not None and frame.f_code is not threading.Thread.start.__code__:
        frame = frame.f_back
    return frame is not None
