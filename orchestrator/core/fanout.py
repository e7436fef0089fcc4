"""Run an action on many nodes concurrently, and report every node's failure."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import DeadlineExceeded, Interrupted, OrchError
from orchestrator.core.unwind import add_note

T = TypeVar("T")
R = TypeVar("R")

MOST_AT_ONCE = 64
MORE_THREADS = "raise the limit of processes (ulimit -u, or pids.max of the control group)"
_SETTLE_S = 1.0
_WAKE_S = 0.5  # how often a waiting main thread lets a signal handler run


def each(
    items: Iterable[T],
    action: Callable[[T], R],
    *,
    deadline: Deadline,
    what: str,
    together: bool = False,
    apart: bool = True,
) -> dict[T, R]:
    """Call `action` for every item in threads of their own and give the results in the items' order.

    At most MOST_AT_ONCE go on at a time, or all of them (`together`). When some fail, the first error in the items'
    order is raised and the others are its notes. Past the deadline, DeadlineExceeded names the items that have not
    answered: their threads are left behind as daemons, and no other one begins. Where this machine lets no more threads
    start, the rest is done here, one after the other, unless they wait for each other and cannot be done `apart`.
    """
    todo = list(items)
    if len(todo) == 1:
        return {todo[0]: action(todo[0])}
    done: queue.SimpleQueue[tuple[T, R | None, Exception | None]] = queue.SimpleQueue()
    slots = threading.BoundedSemaphore(max(1, len(todo)) if together else MOST_AT_ONCE)
    called_off = threading.Event()

    def work(item: T) -> None:
        with slots:
            if called_off.is_set():
                return
            try:
                done.put((item, action(item), None))
            except Exception as error:  # noqa: BLE001 - carried to the caller's thread, and raised there
                done.put((item, None, error))

    threads = [threading.Thread(target=work, args=(item,), name=f"{what} {item}", daemon=True) for item in todo]
    try:
        _without_threads(todo[_started(threads) :], work, deadline=deadline, what=what, apart=apart)
        return _collected(todo, done, deadline=deadline, what=what)
    except Interrupted:
        # What is under way gets a moment to end, so that what is put back is not what is still being done.
        called_off.set()
        settled = Deadline.after(_SETTLE_S)
        for thread in threads:
            if thread.is_alive():
                thread.join(settled.remaining)
        raise
    except OrchError:
        called_off.set()
        raise


def _started(threads: list[threading.Thread]) -> int:
    """Start threads, as many as this machine lets start; return how many."""
    for number, thread in enumerate(threads):
        try:
            thread.start()
        except RuntimeError:
            return number
    return len(threads)


def _without_threads(items: list[T], work: Callable[[T], None], *, deadline: Deadline, what: str, apart: bool) -> None:
    """Run, one after the other in this thread, the actions for which no thread could be started."""
    if items and not apart:
        raise OrchError(f"{what}: no thread starts for {_told(items[0])}", hint=MORE_THREADS)
    for item in items:
        if not deadline.expired:
            work(item)


def _collected(
    todo: list[T], done: queue.SimpleQueue[tuple[T, R | None, Exception | None]], *, deadline: Deadline, what: str
) -> dict[T, R]:
    results: dict[T, R | None] = {}
    errors: dict[T, Exception] = {}
    while len(results) + len(errors) < len(todo):
        try:
            item, result, error = done.get(timeout=min(_WAKE_S, deadline.remaining) or 0.001)
        except queue.Empty:
            if deadline.expired:
                late = ", ".join(_told(item) for item in todo if item not in results and item not in errors)
                raise DeadlineExceeded(f"gave up waiting for {what}: no answer from {late}") from None
            continue
        if error is not None:
            errors[item] = error
        else:
            results[item] = result
    if errors:
        raise _joined([errors[item] for item in todo if item in errors])
    return {item: results[item] for item in todo}  # type: ignore[misc]


def _told(item: object) -> str:
    """Return an item in words: a node, or a node and what is on it."""
    return " ".join(map(str, item)) if isinstance(item, tuple) else str(item)


def _joined(errors: list[Exception]) -> Exception:
    """Return the first error with the others as its notes; what several say alike is said once."""
    first, *others = (_line(error) for error in errors)
    for other in dict.fromkeys(others):
        if other != first:
            add_note(errors[0], other)
    return errors[0]


def _line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
