"""How a rank starts, waits for its gate, fails and ends: without a traceback, and at any moment."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

# A rank whose peer went away waits this long before it calls that a failure. When a run ends its ranks are asked to
# end one after the other, and a rank must not fail because another one was asked first; and when a peer failed, the
# peer's own reason is then the first one seen.
PEER_GRACE_S = 2.0

_ENDING = {signal.SIGTERM, signal.SIGINT}


def end_on_signal(flush: Callable[[], None]) -> None:
    """From now on SIGTERM and SIGINT end the process at once with status 0, after `flush`.

    Call it before anything starts a thread: every later thread inherits the blocked signals, so that only the thread
    started here takes them. A handler of Python's own would have to wait until a collective in C++ returns.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)

    def wait() -> None:
        signal.sigwait(_ENDING)
        flush()
        os._exit(0)

    threading.Thread(target=wait, name="end-on-signal", daemon=True).start()


def fail(reason: str) -> NoReturn:
    """End the process with status 1 and one line on standard error."""
    print(f"rank {os.environ.get('RANK', '?')}: {reason}", file=sys.stderr, flush=True)
    os._exit(1)


def peer_lost(error: Exception) -> NoReturn:
    """A collective failed: give the signal to end a moment to arrive, then fail."""
    threading.Event().wait(PEER_GRACE_S)
    fail(f"a collective failed: {first_line(error)}")


def first_line(error: BaseException) -> str:
    """The first line of an error's text, or its type where it has none."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def report_ready() -> None:
    """Say that this rank can start its first iteration."""
    print("ready", flush=True)


def wait_for_go() -> None:
    """Block until the line "go" arrives on standard input; fail when it ends first."""
    for line in sys.stdin:
        if line.strip() == "go":
            return
    fail('standard input ended before "go" came')
