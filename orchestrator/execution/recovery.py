"""After a bad day: `orch recover` brings home what an unfinished run left, and seals it."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from orchestrator.core import fanout, lock
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import ConfigError, LockedError, OrchError, StoreError
from orchestrator.core.exitcodes import Exit
from orchestrator.core.interrupts import Interrupts
from orchestrator.core.paths import safepath
from orchestrator.execution import sealing
from orchestrator.execution.actions import host_reduction
from orchestrator.execution.actions.fetching import FETCH_S, bring_up, fetch_all, has_more, notes, nothing_stays
from orchestrator.execution.sealing import Reducer
from orchestrator.execution.session import holder
from orchestrator.experiment import loading, plan, runtext, testbeds
from orchestrator.experiment.experiment import Experiment
from orchestrator.experiment.testbeds import Named
from orchestrator.parts.protocols import Testbed
from orchestrator.remote.agent_client import ENDING_S, SILENCE_S, AgentClient, come_back
from orchestrator.store import rundir
from orchestrator.store.rundir import Entry, RunFolder
from orchestrator.store.stamps import PARTIAL

REACH_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """What is to be noted of a host whose files are home, and the captures that stay there."""

    notes: Sequence[str]
    left: host_reduction.CapturesLeft
    more: bool = False  # whether files are still there


def recover(
    results: Path,
    wanted: Sequence[str],
    *,
    named: Sequence[Named] = (),
    without: Sequence[str] = (),
    force: bool = False,
) -> int:
    """Seal unfinished runs whose controller is gone; gives the exit status.

    Hosts are reached by the testbeds that are `named`, and by nothing that stands in a run's folder. `without` names
    hosts that will not come back, and whose files are given up; once one did come back, the run that is wanted gets its
    files after all. With `force` a run that was begun by another machine is taken for ended.
    """
    failed = 0
    if wanted:
        chosen = [rundir.find(results, name) for name in wanted]
        for entry in chosen:
            _refuse_whole(entry, force=force)
    else:
        found, failed = _readable(results)
        chosen = [entry for entry in found if not entry.sealed and not entry.alive]
        for entry in found:
            if entry.sealed and entry.manifest.given_up:
                print(
                    f"{entry.run}: was sealed without all that {', '.join(entry.manifest.given_up)} has of it: "
                    f"`orch recover {entry.run} --testbed FILE` fetches it"
                )
    _refuse_strangers(chosen, without)
    if not chosen and not failed:
        print("nothing to recover")
    for entry in chosen:
        try:
            if entry.sealed:
                path = complete(entry, named)
                print(f"{entry.run}: what {', '.join(entry.manifest.given_up)} had of it is home: {path}")
            else:
                path = seal(entry, named, without=without)
                print(f"{entry.run}: sealed as lost: {path}")
            if left := rundir.opened(path).manifest.given_up:
                print(f"{entry.run}: but not all that {', '.join(left)} has of it: `orch show {entry.run}` says why")
        except OrchError as error:
            failed += 1
            print(f"{entry.run}: {error}")
    return Exit.FAILED if failed else Exit.OK


def _readable(results: Path) -> tuple[list[Entry], int]:
    """Return the runs of the store, and how many unfinished ones cannot be read, which are told."""
    found, unreadable = [], 0
    for folder in rundir.folders(results):
        try:
            found.append(rundir.opened(folder))
        except StoreError as error:
            if folder.name.endswith(PARTIAL):
                unreadable += 1
                print(f"{folder.name.removesuffix(PARTIAL)}: {error}")
    return found, unreadable


def _refuse_whole(entry: Entry, *, force: bool) -> None:
    elsewhere = "" if entry.sealed else entry.elsewhere
    if entry.sealed and entry.manifest.given_up:
        return
    if entry.sealed or (entry.alive and not (force and elsewhere)):
        raise StoreError(
            f"{entry.run} needs no recovery: it is {runtext.verdict(entry.manifest, entry.outcome)}",
            hint=f"if {elsewhere} is gone, or has ended it: --force" if elsewhere else None,
        )


def _refuse_strangers(chosen: Sequence[Entry], without: Sequence[str]) -> None:
    """ConfigError for a host to be given up that no run to be recovered has."""
    hosts = sorted({node for entry in chosen for node in entry.manifest.nodes})
    if strangers := [name for name in without if name not in hosts]:
        runs = ", ".join(entry.run for entry in chosen) or "nothing to recover"
        raise ConfigError(f"--without {strangers[0]}: no host of {runs}; accepted: {', '.join(hosts) or 'none'}")


def seal(entry: Entry, named: Sequence[Named], *, without: Sequence[str] = ()) -> Path:
    """Bring home what lies on the hosts of an unfinished run, and seal it; gives its folder. One at a time may.

    Hosts are reached by the testbeds that are `named`; a run on hosts of this machine needs none.
    What hosts named in `without` have is given up, until they are back.
    """
    with lock.within(entry.path.parent, f"recovery-of-{entry.run}", holder(entry.run)):
        folder = RunFolder(entry.path, replace(entry.manifest, given_up=()))
        experiment, recorded = _experiment_of(entry), entry.manifest.topology
        hosts = entry.path / "hosts"
        if recorded.kind == "local":
            for node in recorded.nodes:
                home = safepath.under(hosts, node.name)
                left = safepath.under(hosts, f"{node.name}/{Path(node.folder(entry.run)).name}")
                for note in notes(node.name, bring_up(left, home), entry.run):
                    _note(folder, note)
        else:
            nodes = entry.manifest.nodes
            there = testbeds.reached(recorded, [name for name in nodes if name not in without], named)
            _take(folder, _bring_all_home(there, folder, stay=plan.captures_stay(experiment, recorded)))
            if given_up := [name for name in nodes if name in without]:
                folder.manifest = replace(folder.manifest, given_up=(*folder.manifest.given_up, *given_up))
                _note(folder, f"given up: what {', '.join(given_up)} had of the run")
        reason = folder.manifest.error or "the controller ended without putting the run down"
        folder.manifest = replace(folder.manifest, outcome="lost", error=reason)
        return _sealed(folder, experiment)


def complete(entry: Entry, named: Sequence[Named]) -> Path:
    """Bring home what hosts have of a sealed run that was given up, and seal it again with that; gives its folder.

    Nothing of the run is touched while one of the hosts cannot be reached.
    """
    back = entry.manifest.given_up
    with lock.within(entry.path.parent, f"recovery-of-{entry.run}", holder(entry.run)), ExitStack() as closing:
        experiment, recorded = _experiment_of(entry), entry.manifest.topology
        there = testbeds.reached(recorded, [name for name in entry.manifest.nodes if name in back], named)
        clients = []
        for name, testbed in there.items():
            clients.append(_reached(testbed, name, entry.run))
            closing.callback(clients[-1].close, Deadline.after(FETCH_S))
        folder = RunFolder(entry.path, replace(entry.manifest, given_up=()))
        folder.reopen()
        stay = plan.captures_stay(experiment, recorded)
        for client in clients:
            _take(folder, {client.node.name: _bring_home(client, folder, stay=stay)})
        _note(folder, f"fetched later: what {', '.join(back)} had of the run")
        return _sealed(folder, experiment)


def _experiment_of(entry: Entry) -> Experiment:
    """Return what the run was to do, from a folder that is the caller's own.

    It says nothing of how hosts are reached.
    """
    rundir.refuse_anothers(entry)
    for name in ("hosts", "tables", "experiment.yaml"):  # no link: the folder may be somebody else's
        safepath.under(entry.path, name)
    for path in (entry.path / "tables").glob("*"):
        safepath.under(entry.path, path.relative_to(entry.path).as_posix())
    return loading.sealed(entry.path)


def _note(folder: RunFolder, note: str) -> None:
    if note not in folder.manifest.notes:
        folder.manifest = replace(folder.manifest, notes=(*folder.manifest.notes, note))


def _take(folder: RunFolder, home: Mapping[str, Home]) -> None:
    """Take into the manifest what is to be noted of hosts, and which captures stay on them."""
    stayed, troubles = host_reduction.recorded({name: one.left for name, one in home.items()}, folder.path / "hosts")
    for note in [*(note for one in home.values() for note in one.notes), *troubles]:
        _note(folder, note)
    others = [one for one in folder.manifest.stayed if one.node not in home]
    more = sorted({*folder.manifest.given_up, *(node for node, one in home.items() if one.more)})
    folder.manifest = replace(folder.manifest, stayed=(*others, *stayed), given_up=tuple(more))


def _bring_all_home(there: Mapping[str, Testbed], folder: RunFolder, *, stay: bool) -> dict[str, Home]:
    def fetch(name: str) -> Home:
        client = _reached(there[name], name, folder.manifest.run)
        try:
            return _bring_home(client, folder, stay=stay)
        finally:
            client.close(Deadline.after(FETCH_S))

    try:
        return fanout.each(list(there), fetch, deadline=Deadline.after(FETCH_S), what="recovering")
    except OrchError as error:
        if error.node is not None:
            error.hint = f"{error.hint or ''}; once it will not come back: --without {error.node}".lstrip("; ")
        raise


def _reached(testbed: Testbed, name: str, run: str) -> AgentClient:
    """Return a client on a host of the run, whose agent may not have noticed yet that its controller is gone."""
    deadline = Deadline.after(FETCH_S)
    patience_s = SILENCE_S + ENDING_S

    def reach() -> AgentClient:
        channel = testbed.connect(name, deadline.sooner(REACH_S))
        return AgentClient(testbed.topology.node(name), channel, run=run, holder=holder(run), on_event=lambda _: None)

    def waiting(error: LockedError) -> None:
        print(f"{error}; waits up to {patience_s:.0f} s for the end of that agent", file=sys.stderr)

    return come_back(reach, deadline, patience_s=patience_s, waiting=waiting)


def _bring_home(client: AgentClient, folder: RunFolder, *, stay: bool) -> Home:
    """Put down and take back what the run left on a host, then bring its files home, but captures that `stay`.

    AgentError where a change cannot be taken back: the host keeps the run's folder then.
    """
    deadline = Deadline.after(FETCH_S)
    name, manifest = client.node.name, folder.manifest
    swept = client.sweep(deadline, keep_data=True)
    left = (
        host_reduction.reduce_there(client, manifest, deadline)
        if stay
        else host_reduction.CapturesLeft(folder=client.folder, files=())
    )
    stays = partial(host_reduction.is_capture, manifest) if stay else nothing_stays
    lacking = fetch_all(client, folder.path / "hosts" / name, deadline, stays=stays)
    failed = [f"{name}: could not undo {what}" for what in swept.failed if f"/{manifest.run}." in what]
    return Home(notes=[*failed, *notes(name, lacking, manifest.run)], left=left, more=has_more(lacking))


def _sealed(folder: RunFolder, experiment: Experiment) -> Path:
    """Make the tables of what is home, judge it and seal it; gives its folder."""
    folder.save(folder.manifest)
    reducer = Reducer()
    try:
        with Interrupts() as interrupts:
            interrupts.unwinding()
            reducer.reduce(folder, interrupts, partial(print, file=sys.stderr), why="orch recover")
    except OrchError as error:
        _note(folder, f"{error.message}; {error.hint}")
    finally:
        reducer.close()
    manifest = sealing.judged(folder.manifest, len(experiment.all_windows()))
    folder.manifest = replace(manifest, ended_ns=time.time_ns())
    folder.hash_files()
    return folder.seal()
