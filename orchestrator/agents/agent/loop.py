"""The event loop of the agent's one thread: it handles ready descriptors, then every task that is due.

While a step blocks that thread (an fsync of a full disk, a dead mount), another thread sends signs of life.
"""

from __future__ import annotations

import os
import re
import selectors
import signal
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, List, NamedTuple, Optional, Tuple

from .frames import BACKLOG, MAGIC, Wire
from .steps import Refusal, Steps, T, as_json

if TYPE_CHECKING:
    from .bounds import Count

IDLE_S = 3600.0  # at most, before it looks again: selectors take no time without bounds


class Answered(NamedTuple):
    """The field of every answer: the request that it answers."""

    id: Count


class Task:
    """A request whose answer takes several steps."""

    def __init__(self, request: object, steps: Steps[Any], *, must_finish: bool = False) -> None:
        self.request = request
        self.steps = steps
        self.must_finish = must_finish  # it must not be dropped before its end
        self.wake_at: Optional[float] = 0.0


class Loop:
    """The agent's event loop: its channel, the requests to answer on it, and when each goes on."""

    def __init__(self, fds: Tuple[int, int], early: bytes, handle: Callable[[object, bytes], None]) -> None:
        self.selector = selectors.DefaultSelector()
        self.wire = Wire(self.selector, fds, early)
        self.handle = handle
        self.selector.register(self.wire.reader, selectors.EVENT_READ, self.receive)
        self.tasks: List[Task] = []
        self.ending = False
        self.heard_at = time.monotonic()
        self.silence_s = 0.0  # how long the controller may be silent; 0 is without limit
        self.woken = False
        self.shutting_down = False  # it puts everything down, and takes no requests
        self.busy_since: Optional[float] = time.monotonic()  # since when it has not waited; None while it waits

    def catch_signals(self, reap: Callable[[], None]) -> None:
        """End at SIGTERM and SIGHUP, and call `reap` when a child has ended."""
        wakeup, waker = os.pipe()
        for fd in (wakeup, waker):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # Ctrl-C is the controller's to handle; it needs its agents for that.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: setattr(self, "ending", True))
        self.selector.register(wakeup, selectors.EVENT_READ, lambda: self.wake(wakeup, reap))

    def wake(self, wakeup: int, reap: Callable[[], None]) -> None:
        try:
            while os.read(wakeup, 4096):
                continue
        except BlockingIOError:
            pass
        self.woken = True
        reap()

    def serve(self) -> None:
        """Answer until the input ends, nothing has come for too long, or a signal comes."""
        self.wire.pending += MAGIC
        self.wire.flush()
        self.handle_frames()
        while not self.ending:
            self.turn(self.idle_s())
            self.step_tasks()
            if self.silence_s and time.monotonic() - self.heard_at >= self.silence_s:
                break

    def turn(self, wait_s: Optional[float]) -> None:
        self.wire.flush()
        self.busy_since = None
        ready = self.selector.select(wait_s)
        self.busy_since = time.monotonic()
        for key, _ in ready:
            key.data()

    def busy_s(self) -> float:
        """Return for how long, in seconds, the loop has not looked for requests."""
        busy_since = self.busy_since
        return 0.0 if busy_since is None else time.monotonic() - busy_since

    def receive(self) -> None:
        self.heard_at = time.monotonic()
        if not self.wire.read():
            self.ending = True
        self.handle_frames()

    def handle_frames(self) -> None:
        try:
            for header, payload in self.wire.frames():
                self.handle(header, payload)
        except Refusal as refusal:  # the stream cannot be followed any more
            self.wire.send({"id": None, "error": str(refusal), "kind": refusal.kind})
            self.ending = True

    def step_tasks(self) -> None:
        everyone, self.woken = self.woken, False
        now = time.monotonic()
        for task in list(self.tasks):
            drained = len(self.wire.pending) < BACKLOG
            if (drained if task.wake_at is None else everyone or task.wake_at <= now) and self.step(task):
                self.tasks.remove(task)

    def step(self, task: Task) -> bool:
        """Run one step of a task; return True when it is over and answered."""
        try:
            pause = next(task.steps)
        except StopIteration as end:
            self.answer(task.request, end.value)
        except Refusal as refusal:
            self.answer(task.request, dict(refusal.more, error=str(refusal), kind=refusal.kind))
        except OSError as error:
            self.answer(task.request, {"error": str(error), "kind": "os", "errno": error.errno})
        except (ValueError, TypeError, LookupError, AttributeError, re.error, OverflowError) as error:
            text = "%s: %s" % (type(error).__name__, error)
            self.answer(task.request, {"error": text, "kind": "bad-request"})
        except subprocess.SubprocessError as error:
            self.answer(task.request, {"error": str(error), "kind": "os"})
        else:
            task.wake_at = None if pause is None else time.monotonic() + pause
            return False
        return True

    def cancel(self, *, request: int) -> None:
        """Cancel a task whose answer nobody waits for; one that must not be left half done goes on."""
        for task in self.tasks:
            if task.request == request and not task.must_finish:
                task.steps.close()

    def answer(self, request: object, result: Any) -> None:
        """Send an answer: a named tuple, None for an empty answer, or an object with an error."""
        header = as_json(result) or {}
        if request is None and "error" not in header:
            return  # a task of the agent's own
        self.wire.send(dict(header, id=request, ok="error" not in header))

    def idle_s(self) -> Optional[float]:
        if self.woken:
            return 0.0
        times = [task.wake_at for task in self.tasks if task.wake_at is not None]
        if any(task.wake_at is None for task in self.tasks) and len(self.wire.pending) < BACKLOG:
            return 0.0
        if self.silence_s:
            times.append(self.heard_at + self.silence_s)
        return min(IDLE_S, max(0.0, min(times) - time.monotonic())) if times else None

    def finish_whole(self, within_s: float) -> None:
        """Finish the tasks that must not be left half done, and drop the others."""
        self.tasks = [task for task in self.tasks if task.must_finish]
        end = time.monotonic() + within_s
        while self.tasks and time.monotonic() < end:
            self.turn(0.02)  # the limit of silence does not apply here
            self.step_tasks()
        self.tasks.clear()

    def drive(self, steps: Steps[T]) -> T:
        """Run one task to its end while requests wait."""
        while True:
            try:
                pause = next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            self.turn(min(0.05 if pause is None else pause, 0.05))


BUSY_S = 1.5  # how long a step may block the loop before a sign of life is sent


def speak_when_busy(loop: Loop) -> None:
    """Start a thread that sends a sign of life while the loop is held up; a process that is stopped sends none."""
    threading.Thread(target=beat, args=(loop,), daemon=True).start()


def beat(loop: Loop) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are for the thread that waits for them
    while True:
        time.sleep(BUSY_S)
        if loop.shutting_down or loop.busy_s() >= BUSY_S:
            loop.wire.send({"id": 0})  # an answer to no request
