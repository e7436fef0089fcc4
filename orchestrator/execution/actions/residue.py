"""Find what still runs of a run on its nodes when it ends: nothing may, and what an agent left is put down."""

from __future__ import annotations

import time
from functools import partial

from orchestrator.core import fanout
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import OrchError
from orchestrator.execution.session import CALL_S, Session
from orchestrator.parts.shared.capture_files import CLOSING
from orchestrator.remote.agent_client import come_back

SETTLE_S = 2.0  # for a command that was requested and is about to end
EVERY_S = 0.1


def left(session: Session) -> list[str]:
    """What still runs of this run, everywhere; sweeps nodes whose agent is gone."""
    session.watch.settle()
    settled = Deadline.after(SETTLE_S)
    while (strays := _strays(session)) and not settled.expired:
        session.interrupts.rest(time.monotonic() + EVERY_S)
    return strays + _sweep_lost(session)


def _strays(session: Session) -> list[str]:
    processes = session.each(
        session.clients, lambda client: client.processes(Deadline.after(CALL_S)), what="residue", seconds=CALL_S
    )
    return [
        f"{node}: {' '.join(process.argv)}"
        for node, running in processes.items()
        for process in running
        if process.name != CLOSING  # it reads captures until they are asked for
    ]


def _sweep_lost(session: Session) -> list[str]:
    """End what runs on nodes whose agents are gone, on all at once; what could not be ended.

    One that cannot be reached keeps nobody from the others; it stays lost.
    """
    lost = list(session.watch.lost)
    swept = fanout.each(lost, partial(_sweep, session), deadline=Deadline.after(3 * CALL_S), what="sweeping")
    for name, error in swept.items():
        if isinstance(error, OrchError):
            whose = f"{error.node}: " if error.node not in (name, None) else ""  # a jump host's, perhaps
            session.watch.notes.append(f"{name}: processes of the run could not be ended there: {whose}{error.message}")
    return [line for lines in swept.values() if not isinstance(lines, OrchError) for line in lines]


def _sweep(session: Session, name: str) -> list[str] | OrchError:
    reached, deadline = Deadline.after(CALL_S), Deadline.after(2 * CALL_S)
    try:
        client = come_back(partial(session.client, name, reached), deadline)
    except OrchError as error:
        return error
    try:
        swept = client.sweep(deadline, keep_data=True)
    except OrchError as error:
        client.close(deadline)
        return error
    session.clients[name] = client
    del session.watch.lost[name]
    session.events.write("swept", node=name, killed=len(swept.killed), undone=list(swept.undone))
    return [f"{name}: process {pid}" for pid in swept.left] + [f"{name}: {change.text}" for change in swept.failed]
