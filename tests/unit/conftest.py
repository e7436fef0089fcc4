"""Clients of real agents on this machine."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agents.agent.sweep import Swept
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import OrchError
from orchestrator.parts.topology import Node
from orchestrator.remote.agent_client import AgentClient
from orchestrator.remote.events import AgentEvent
from orchestrator.remote.transport.local import LocalChannel
from orchestrator.report import style
from tests.helpers.machine import PATIENCE_S

AGENT_PYTHON = os.environ.get("ORCH_AGENT_PYTHON", sys.executable)  # of the agents: may be an older one
NOT_ALLOWED = "a test that kills an agent or sweeps takes turns with the others: it has to ask for the fixture `strays`"


class RecordingClient(AgentClient):
    """A client that keeps its channel and its events for the test."""

    def __init__(
        self,
        work: Path,
        *,
        name: str = "n1",
        run: str = "r1",
        env: dict[str, str] | None = None,
        silence_s: float = 120.0,
        strays: bool = False,
        python: str = AGENT_PYTHON,
        **known: Any,
    ) -> None:
        self.strays = strays
        self.channel = LocalChannel(python, env=env)
        self.events: list[AgentEvent] = []
        node = Node(name=name, work=str(work), python=sys.executable)
        holder = {"user": "ada", "host": "desk", "pid": 7, "run": run, "since": "noon"}
        super().__init__(
            node, self.channel, run=run, holder=holder, on_event=self.events.append, silence_s=silence_s, **known
        )

    def await_event(self, wanted: Callable[[AgentEvent], bool]) -> AgentEvent:
        Deadline.after(PATIENCE_S).poll(lambda: any(map(wanted, self.events)), every_s=0.005, waiting_for="an event")
        return next(filter(wanted, self.events))

    def sweep(self, deadline: Deadline, **how: Any) -> Swept:
        assert self.strays, NOT_ALLOWED
        return super().sweep(deadline, **how)


@pytest.fixture(autouse=True)
def _quick_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fonts are not cut down to what they show, half of a page's time; fixtures of modules draw as users do."""
    monkeypatch.setitem(style.LOOK, "pdf.fonttype", 3)


@pytest.fixture
def run_name(request: pytest.FixtureRequest) -> str:
    return f"{request.node.name[:40].replace('[', '-').replace(']', '').replace('/', '-')}-{time.time_ns() % 10**9}"


@pytest.fixture
def connect_agent(
    request: pytest.FixtureRequest, tmp_path: Path, run_name: str
) -> Iterator[Callable[..., RecordingClient]]:
    made: list[RecordingClient] = []
    strays = "strays" in request.fixturenames
    if strays:
        request.getfixturevalue("strays")  # held until the last agent is gone

    def make(**options: object) -> RecordingClient:
        hello = options.pop("hello", True)
        client = RecordingClient(tmp_path / "work", **{"run": run_name, "strays": strays, **options})  # type: ignore[arg-type]
        made.append(client)
        if hello:
            client.hello(Deadline.after(PATIENCE_S))
        return client

    yield make
    for client in made:
        try:
            client.close(Deadline.after(PATIENCE_S))
        except OrchError:
            client.channel.close()
        assert strays or client.channel._process.returncode != -signal.SIGKILL, NOT_ALLOWED
