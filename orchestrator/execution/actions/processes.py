"""Start, release and stop the processes of a run on its nodes, and find what still runs of it when it ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from orchestrator.core import fanout
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import Interrupted, NeverStartedError, OrchError
from orchestrator.core.screen import alike
from orchestrator.core.unwind import combined
from orchestrator.execution.session import CALL_S, Session
from orchestrator.experiment.pacing import Pace
from orchestrator.experiment.plan import PlannedJob
from orchestrator.parts import ranks
from orchestrator.parts.launch import Launch
from orchestrator.parts.shared.capture_files import CLOSING
from orchestrator.remote.agent_client import come_back

TAIL_BYTES = 4000
SETTLE_S = 2.0  # for a command that was requested and is about to end
EVERY_S = 0.1
AHEAD_S = 1.0  # of the instant at which paced ranks begin: by then every host has been told


class Processes:
    """Starts and stops launches on the nodes of a session; what becomes of them is in the session's watch."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._killed: list[Launch] = []  # because a second signal came

    def cut_short(self) -> list[str]:
        """Return a sentence on the processes that a second signal left no time to end by themselves.

        None where none was.
        """
        if not self._killed:
            return []
        names = alike.names(sorted(launch.name for launch in self._killed))
        return [f"killed at once, as a second signal asked, so that the end of what they wrote may be missing: {names}"]

    def start(self, launches: Sequence[Launch], *, what: str) -> None:
        """Start processes and wait until each is ready; lower orders first, the same order at once."""
        for order in sorted({launch.order for launch in launches}):
            batch = [launch for launch in launches if launch.order == order]
            for launch in batch:
                self._session.watch.add(launch)
            within = Deadline.after(max(launch.ready_within_s for launch in batch) + CALL_S)
            # Ranks are ready when all have met, so the last one must not wait for the others to be ready.
            fanout.each(
                batch_keys(batch), self._start_one(batch), deadline=within, what=what, together=True, apart=False
            )

    def _start_one(self, batch: Sequence[Launch]) -> Callable[[tuple[str, str]], None]:
        by_key = {(launch.node, launch.name): launch for launch in batch}

        def start(key: tuple[str, str]) -> None:
            launch = self._with_pids(by_key[key])
            self._session.watch.processes[key].asked = True
            self._session.events.write("start", node=launch.node, name=launch.name, argv=list(launch.argv))
            try:
                running = self._session.clients[launch.node].start(
                    launch, Deadline.after(launch.ready_within_s + CALL_S)
                )
            except OrchError as error:
                process = self._session.watch.processes[key]
                process.failed = error.message
                if launch.required:
                    raise
                process.stopping = True
                self._session.watch.notes.append(f"{launch.node}: {launch.name} did not start: {error.message}")
                return
            self._session.watch.processes[key].pid = running.pid
            self._session.events.write("ready", node=launch.node, name=launch.name)

        return start

    def _with_pids(self, launch: Launch) -> Launch:
        """Return a launch as it is started: of one that watches ranks, with their process ids."""
        if not launch.after_ranks:
            return launch
        pids = {key: one.pid for key, one in self._session.watch.processes.items()}
        wrapped = {
            (one.launch.name, ranks.own_argv(one.launch))
            for (node, _), one in self._session.watch.processes.items()
            if node == launch.node and one.launch.wrapped_by
        }
        if wrapped:
            for found in self._session.clients[launch.node].processes(Deadline.after(CALL_S)):
                if (found.name, tuple(found.argv)) in wrapped:
                    pids[launch.node, found.name] = found.pid
        return ranks.with_pids(launch, pids)

    def go(self, jobs: Sequence[PlannedJob], *, dilation: int) -> None:
        """Open the gate of every rank of some jobs; where one begins after another, or by a period, all by one instant.

        That instant is AHEAD_S away, so that each rank hears of it before.
        """
        paces = {
            (launch.node, launch.name): job.pace.dilated(dilation)
            for job in jobs
            for launch in job.launches
            if launch.gate
        }
        paced = any(pace != Pace() for pace in paces.values())
        begin_ns = time.time_ns() + int(AHEAD_S * 1e9)

        def go(key: tuple[str, str]) -> None:
            node, name = key
            at_ns = begin_ns - self._session.watch.offsets_ns.get(node, 0) + round(paces[key].begin_s * 1e9)
            every_ns = round((paces[key].every_s or 0.0) * 1e9)
            timing = {"at_ns": at_ns, "every_ns": every_ns} if paced else {}
            self._session.clients[node].go(name, Deadline.after(CALL_S), **timing)

        fanout.each(sorted(paces), go, deadline=Deadline.after(CALL_S), what="opening the gate")

    def stop(self, launches: Sequence[Launch], *, measured_until: float) -> None:
        """Ask processes to end, later orders first; those that drain wait until their time after `measured_until`.

        What fails with those of one order keeps nobody from those of the next.
        """
        wrong: list[tuple[str, Exception]] = []
        for order in sorted({launch.order for launch in launches}, reverse=True):
            self._session.note_losses()
            batch = [launch for launch in self.up(launches) if launch.order == order]
            for launch in batch:
                self._session.watch.processes[launch.node, launch.name].stopping = True
            drain = max((launch.stop.drain_s for launch in batch), default=0.0)
            self._session.interrupts.rest(measured_until + drain)
            patience = max((sum(grace for _, grace in launch.stop.signals) for launch in batch), default=0.0)
            by_key = {(launch.node, launch.name): launch for launch in batch}
            try:
                fanout.each(
                    batch_keys(batch),
                    lambda key, by_key=by_key: self._stop_one(by_key[key]),  # type: ignore[misc]
                    deadline=Deadline.after(patience + CALL_S),
                    what="stopping",
                    together=True,  # ranks of some frameworks end by themselves when all have been asked to
                )
            except Interrupted:
                raise
            except OrchError as error:
                wrong.append((f"order {order}", error))
        if (first := combined(wrong)) is not None:
            raise first

    def up(self, launches: Sequence[Launch]) -> list[Launch]:
        """Those that were started and have not ended, as far as is known."""
        return [launch for launch in launches if self._to_stop(launch)]

    def _to_stop(self, launch: Launch) -> bool:
        process = self._session.watch.processes.get((launch.node, launch.name))
        return (
            process is not None
            and process.asked
            and process.status is None
            and launch.node not in self._session.watch.lost
        )

    def _stop_one(self, launch: Launch) -> None:
        process = self._session.watch.processes[launch.node, launch.name]
        patience = sum(grace for _, grace in launch.stop.signals)
        try:
            stopped = self._session.clients[launch.node].stop(
                launch, Deadline.after(patience + CALL_S), grace=self._session.interrupts.grace
            )
        except NeverStartedError:  # a signal came in between
            process.asked = False
            return
        process.status = stopped.status
        self._session.events.write(
            "stopped",
            node=launch.node,
            name=launch.name,
            status=stopped.status,
            killed=stopped.killed,
            user_s=stopped.user_s,
            system_s=stopped.system_s,
            max_rss_bytes=stopped.max_rss_bytes,
        )
        if stopped.killed and self._session.interrupts.hurry:
            self._killed.append(launch)
        elif not stopped.was_over and stopped.status not in launch.stop.ok and process.failed is None:
            process.failed = f"{launch.name} ended with status {stopped.status} when it was asked to end"
            self._session.watch.notes.append(f"{launch.node}: {process.failed}")

    def tail(self, launch: Launch) -> str:
        """Return the last that a process printed, from its node; empty when that cannot be had."""
        client = self._session.clients.get(launch.node)
        if client is None or launch.node in self._session.watch.lost:
            return ""
        texts = client.read([f"{launch.name}/{name}" for name in ("stdout", "stderr")], Deadline.after(CALL_S)).texts
        return "\n".join(text[-TAIL_BYTES:].strip() for text in texts.values() if text)


def batch_keys(batch: Sequence[Launch]) -> list[tuple[str, str]]:
    """Node and name of each launch."""
    return [(launch.node, launch.name) for launch in batch]


def still_running(session: Session) -> list[str]:
    """Return what still runs of this run, everywhere; sweeps nodes whose agent is gone."""
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
