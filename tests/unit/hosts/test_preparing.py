"""`orch prepare` on a host where others are at work, with a real agent and a playbook that says what it did."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import LockedError
from orchestrator.execution import session
from orchestrator.hosts import preparing
from orchestrator.hosts.preparing import Step
from tests.helpers.machine import PATIENCE_S

# With --check it says what it would do, and that there is something; else it does it.
PLAYBOOK = """
echo "frameworks: $*"
[ "$1" = --check ] && exit 1
touch {built}
"""
STEP = Step(environments=("horovod",))


def soon() -> Deadline:
    return Deadline.after(PATIENCE_S)


@pytest.fixture
def names(monkeypatch, run_name):
    """Locks of this test alone: those of a host are its machine's, and other tests prepare and measure here."""
    assert preparing.MEASURING == session.MEASURING, "what a run holds on each of its hosts"
    found = {"measuring": f"testbed-{run_name}", "preparing": f"prepare-{run_name}"}
    monkeypatch.setattr(preparing, "MEASURING", found["measuring"])
    monkeypatch.setattr(preparing, "_LOCK", found["preparing"])
    return found


@pytest.fixture
def prepare(connect_agent, tmp_path, run_name):
    playbook, built = tmp_path / "playbook", tmp_path / "built"
    playbook.write_text(PLAYBOOK.format(built=built))

    def on_host(*, check: bool) -> tuple[preparing.Outcome, Path]:
        client = connect_agent(hello=False, run=f"{run_name}-prepare")
        try:
            return preparing._on(client, {preparing.SCRIPT: playbook}, STEP, check=check, deadline=soon()), built
        finally:
            client.close(soon())

    return on_host


def test_nothing_is_built_while_a_run_measures(connect_agent, names, prepare, tmp_path):
    measuring = connect_agent()
    measuring.lock(names["measuring"], soon())
    outcome, built = prepare(check=True)
    assert outcome.lacks == ("--check horovod",), "to look costs nobody anything"
    with pytest.raises(LockedError, match="held by ada@desk"):
        prepare(check=False)
    assert not built.exists()
    measuring.close(soon())
    outcome, built = prepare(check=False)
    assert (outcome.said, outcome.trouble, built.exists()) == (("horovod",), "", True)


def test_nobody_measures_while_something_is_built(connect_agent, names, prepare, monkeypatch):
    other = connect_agent()
    refused = []

    def build(self, *, check):
        if check:
            return ["sh", "-c", "echo frameworks: it; exit 1"]
        with pytest.raises(LockedError) as caught:
            other.lock(names["measuring"], soon())
        refused.append(caught.value)
        return ["true"]

    monkeypatch.setattr(Step, "argv", lambda self, folder, *, check: build(self, check=check))
    prepare(check=False)
    assert len(refused) == 1
    other.lock(names["measuring"], soon())  # it is over


@pytest.mark.parametrize("check", [True, False])
def test_two_do_not_prepare_a_host_at_once(connect_agent, names, prepare, check):
    connect_agent().lock(names["preparing"], soon())
    with pytest.raises(LockedError):
        prepare(check=check)
