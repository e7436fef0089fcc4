"""Leashes to real agents on this machine."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.answers import AgentEvent
from orchestrator.deadline import Deadline
from orchestrator.errors import OrchError
from orchestrator.leash import Leash
from orchestrator.report import style
from orchestrator.topology import Node
from orchestrator.transport.local import LocalChannel


class Tethered(Leash):
    """A leash that keeps its channel and its events for the test."""

    def __init__(
        self,
        work: Path,
        *,
        name: str = "n1",
        run: str = "r1",
        env: dict[str, str] | None = None,
        silence_s: float = 120.0,
        run_key: str = "",
        python: str = sys.executable,
    ) -> None:
        self.channel = LocalChannel(python, env=env)
        self.events: list[AgentEvent] = []
        node = Node(name=name, work=str(work), python=sys.executable)
        holder = {"user": "ada", "host": "desk", "pid": 7, "run": run, "since": "noon"}
        super().__init__(
            node,
            self.channel,
            run=run,
            holder=holder,
            on_event=self.events.append,
            silence_s=silence_s,
            run_key=run_key,
        )

    def await_event(self, wanted: Callable[[AgentEvent], bool], within_s: float = 3.0) -> AgentEvent:
        Deadline.after(within_s).poll(lambda: any(map(wanted, self.events)), every_s=0.005, waiting_for="an event")
        return next(filter(wanted, self.events))


@pytest.fixture(autouse=True)
def _quick_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fonts are not cut down to what they show, half of a page's time; fixtures of modules draw as users do."""
    monkeypatch.setitem(style.LOOK, "pdf.fonttype", 3)


@pytest.fixture
def run_name(request: pytest.FixtureRequest) -> str:
    return f"{request.node.name[:40].replace('[', '-').replace(']', '').replace('/', '-')}-{time.time_ns() % 10**9}"


@pytest.fixture
def tether(tmp_path: Path, run_name: str) -> Iterator[Callable[..., Tethered]]:
    made: list[Tethered] = []

    def make(**options: object) -> Tethered:
        hello = options.pop("hello", True)
        leash = Tethered(tmp_path / "work", **{"run": run_name, **options})  # type: ignore[arg-type]
        made.append(leash)
        if hello:
            leash.hello(Deadline.after(5))
        return leash

    yield make
    for leash in made:
        try:
            leash.close(Deadline.after(6))
        except OrchError:
            leash.channel.close()
