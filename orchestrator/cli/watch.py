"""The command that watches runs and sweeps while they go on: `orch watch`."""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.cli import options
from orchestrator.cli.commands import Group
from orchestrator.core.exitcodes import Exit

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.watching.view import View

_MORE = """\
From a second shell: phase, iterations as they come, loads against what was
requested, who waits for whom, and gates as they would be judged now. Queues,
retransmissions and processors of hosts are asked for while somebody watches.
Without RUN it takes the newest run under way, with the sweep that it is of, or
waits for one. It ends with the verdict. On what is no terminal it prints a line
for each change."""
_LINE_S = 1.0  # between two lines that say how far a window is


def register(group: Group) -> None:
    """Add `orch watch`."""
    watch = group.add(
        "watch",
        "show what goes on in a run or a sweep under way",
        action=_watch,
        example="orch watch --web",
        more=_MORE,
    )
    options.results(watch)
    watch.add_argument("run", metavar="RUN", nargs="?", help="a run's id or part of it, its folder, or a sweep's name")
    watch.add_argument("--web", action="store_true", help="serve a page to this machine; its address is printed")
    watch.add_argument("--port", type=int, default=0, metavar="PORT", help="of that page (default: any that is free)")


def _watch(arguments: argparse.Namespace) -> int:
    from orchestrator.watching import following

    followed = following.Following(arguments.results, arguments.run)
    with ExitStack() as stack:
        shows: list[Callable[[View], None]] = []
        page = None
        if arguments.web:
            from orchestrator.watching import serving

            page = stack.enter_context(serving.served(arguments.port))
            print(page.url, flush=True)
            shows.append(page.show)
        if sys.stdout.isatty() and page is None:
            from orchestrator.watching import screen

            shows.append(stack.enter_context(screen.opened()).show)
        else:
            shows.append(_Lines().show)
        last: View | None = None
        while last is None or not last.ended:
            if last is not None:
                time.sleep(following.EVERY_S)
            now = followed.look()
            if now != last:
                for show in shows:
                    show(now)
            last = now
        if page is not None:
            page.wait_until_fetched()
    return Exit.FAILED if last.failed else Exit.OK


class _Lines:
    """Prints what is new; how far a window is once a second."""

    def __init__(self) -> None:
        self._before: View | None = None
        self._told = 0.0

    def show(self, now: View) -> None:
        from orchestrator.watching import view

        moment = time.monotonic()
        before = self._before
        if before is not None and before.phase == now.phase and moment - self._told < _LINE_S:
            now = replace(now, progress=before.progress)
        elif now.progress:
            self._told = moment
        for line in view.changes(before, now):
            print(line, flush=True)
        self._before = now
