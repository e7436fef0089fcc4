"""The clock of emulated compute: sleeps that end when a layer would have been done, whatever the framework."""

from __future__ import annotations

import ctypes
import time

_PR_SET_TIMERSLACK = 29
_SHORTEST_SLEEP_S = 5e-6


class ComputeClock:
    """The clock of one pass: it sleeps to instants counted from the start of the pass, so that no delay adds up."""

    def __init__(self) -> None:
        self._start_s = 0.0
        self.last_gradient_ns = 0

    def start(self) -> None:
        self._start_s = time.monotonic()

    def hold(self, seconds: float) -> None:
        """The pass stood still for so long: what is left of it comes later by as much."""
        self._start_s += seconds

    def sleep_until(self, since_start_s: float) -> None:
        """Sleep, without the interpreter's lock, until so many seconds of the pass have gone by."""
        left_s = self._start_s + since_start_s - time.monotonic()
        if left_s > _SHORTEST_SLEEP_S:
            time.sleep(left_s)


def sharpen_timer() -> None:
    """Let this thread's sleeps end on time: Linux adds up to 50 us by default; afterwards 3 us were measured."""
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)
