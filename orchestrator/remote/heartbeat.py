"""Detects silent agents: one thread of this process checks every connection, and names the host or link at fault.

A connection pings when it is idle, so that a living agent is heard of every few seconds, however busy its host is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from orchestrator.core.screen.alike import natural

PING_S = 2.0  # of idleness after which a connection pings
SILENT_S = 8.0  # so that a silent agent is found within ten seconds, by a busy controller too
_LOOK_S = 0.25
_MOST_S = 1.0  # that one look adds to a silence: when this process was kept from looking, it was kept from hearing, too
_MISSED_S = 2.25 * PING_S  # of silence in which an answer to a ping is overdue
_SLOWEST = 125_000  # bytes a second of what hosts are sent, all together: a management network of 1 Mbit/s
_STILL_S = 5.0  # between two looks in which this process stood still, and was not just busy
_RECENT_S = 10.0  # for how long a standstill may explain what is found after it
_SHOWN = 4


@dataclass(frozen=True, slots=True)
class Silence:
    """The report of silence, with the fields of an error; `node` is None where no single host is at fault."""

    message: str
    hint: str
    node: str | None
    since: float
    """Instant of the monotonic clock at which something was heard last."""


@dataclass(slots=True, eq=False)
class Hearing:
    """The time at which one connection was last heard: its threads write it, the monitor reads it.

    `way` names what the connection goes through before its node. `fallen_silent` must not block.
    """

    node: str
    way: Sequence[str]
    fallen_silent: Callable[[Silence], None]
    owed: int = 0
    """Bytes that the agent has been sent and has not answered."""
    listening: bool = False
    """Whether somebody waits for the agent's next word, and does not work on the last one."""
    heard: bool = True
    """Whether a word came since the last look."""
    silent_s: float = field(default=0.0, init=False)

    def passed(self, seconds: float) -> None:
        """Count time in which something could have been heard."""
        silent = self.listening and not self.heard
        self.heard = False
        self.silent_s = self.silent_s + seconds if silent else 0.0


class Monitor:
    """The monitor of silent connections: its thread runs while there are any."""

    def __init__(self) -> None:
        self._hearings: list[Hearing] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._looked = _now()
        self._stood_still = (0.0, 0.0)  # for how many seconds this process did, and until when

    def add(self, hearing: Hearing) -> None:
        """Monitor a connection from now on."""
        with self._changed:
            self._hearings.append(hearing)
            if self._thread is None:
                self._looked = _now()
                self._thread = threading.Thread(target=self._watch, name="heartbeat", daemon=True)
                self._thread.start()

    def remove(self, hearing: Hearing) -> None:
        """Stop monitoring a connection; one that is gone already is no error."""
        with self._changed:
            if hearing in self._hearings:
                self._hearings.remove(hearing)
                self._changed.notify()

    def stood_still_s(self) -> float:
        """Return the seconds for which this process was stopped, or its machine slept, until just now.

        Return 0 where it was not.
        """
        with self._changed:
            if self._thread is not None:
                self._note_standstill(_now() - self._looked)
            seconds, until = self._stood_still
        return seconds if _now() - until < _RECENT_S else 0.0

    def _watch(self) -> None:
        while True:
            with self._changed:
                if not self._hearings:
                    self._thread = None
                    return
                self._changed.wait(_LOOK_S)
                silences = self._look()
            for hearing, silence in silences:
                hearing.fallen_silent(silence)

    def _look(self) -> list[tuple[Hearing, Silence]]:
        now = _now()
        elapsed, self._looked = now - self._looked, now
        self._note_standstill(elapsed)
        for hearing in self._hearings:
            hearing.passed(min(elapsed, _MOST_S))
        patience_s = SILENT_S + sum(hearing.owed for hearing in self._hearings) / _SLOWEST
        found = []
        while silent := next((one for one in self._hearings if one.silent_s >= patience_s), None):
            found += self._judged(silent)
        return found

    def _note_standstill(self, elapsed: float) -> None:
        if elapsed > _STILL_S:
            self._stood_still = (elapsed, _now())

    def _judged(self, silent: Hearing) -> list[tuple[Hearing, Silence]]:
        """Return the connections that fell silent with this one, for the same reason, and stop monitoring them."""
        for place in silent.way:
            behind = [one for one in self._hearings if place in one.way]
            if _all_silent(behind):
                message = f"{place}, which leads to {_names(behind)}: nothing was heard through it for"
                hint = "see whether it is up and answers"
                return self._taken(behind, message, hint, None)
        if _all_silent(self._hearings):
            everybody = list(self._hearings)
            message = f"nothing was heard of any host ({_names(everybody)}) for"
            return self._taken(everybody, message, "see to this machine's own connection to them", None)
        through = f" through {' and '.join(silent.way)}" if silent.way else ""
        hint = "see whether it is up and can be reached, and whether its agent is stopped"
        return self._taken([silent], f"nothing was heard of it{through} for", hint, silent.node)

    def _taken(self, group: list[Hearing], message: str, hint: str, node: str | None) -> list[tuple[Hearing, Silence]]:
        longest = max(one.silent_s for one in group)
        silence = Silence(f"{message} {longest:.0f} s", hint, node, time.monotonic() - longest)
        self._hearings = [one for one in self._hearings if one not in group]
        return [(one, silence) for one in group]


def _all_silent(group: Sequence[Hearing]) -> bool:
    """Return whether these are several, and an answer of each of them is overdue."""
    return len(group) > 1 and all(one.silent_s >= _MISSED_S for one in group)


def _names(group: Sequence[Hearing]) -> str:
    names = sorted((one.node for one in group), key=natural)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN + 1 else ""
    return ", ".join(names[:_SHOWN] if more else names) + more


def _now() -> float:
    """Return the seconds of a clock that goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


MONITOR = Monitor()
