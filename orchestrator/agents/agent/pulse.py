"""A word now and then while the thread that answers is held up: by the fsync of a full disk, by a dead mount."""

from __future__ import annotations

import signal
import threading
import time

from .loop import Loop

BUSY_S = 1.5  # how long a step may hold up answers before a word of ours stands for them


def speak_when_busy(loop: Loop) -> None:
    """Let a thread of its own speak while the loop does not come around; a process that is stopped is silent."""
    threading.Thread(target=beat, args=(loop,), daemon=True).start()


def beat(loop: Loop) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are for the thread that waits for them
    while True:
        time.sleep(BUSY_S)
        if loop.deaf or loop.busy_s() >= BUSY_S:
            loop.wire.send({"id": 0})  # as an answer to what nobody asked
