"""After a bad day: `orch recover` brings home what an unfinished run left, and seals it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence, Set
from pathlib import Path

from orchestrator import describe, fanout, loading, lock, safepath, sealing
from orchestrator.deadline import Deadline
from orchestrator.errors import OrchError, StoreError
from orchestrator.leash import Leash, come_back
from orchestrator.protocols import Channel
from orchestrator.sealing import Reducer
from orchestrator.session import bring_up, fetch_all, holder
from orchestrator.store import rundir
from orchestrator.store.rundir import Entry, RunFolder
from orchestrator.topology import Node

REACH_S = 60.0
FETCH_S = 24 * 3600.0


def recover(results: Path, wanted: Sequence[str], *, without: Sequence[str] = (), force: bool = False) -> int:
    """Seal unfinished runs whose controller is gone; gives the exit status.

    `without` names hosts that will not come back, and whose files are given up. With `force` a run that was begun by
    another machine is taken for ended.
    """
    if wanted:
        chosen = [rundir.find(results, name) for name in wanted]
        for entry in chosen:
            elsewhere = "" if entry.sealed else entry.elsewhere
            if entry.sealed or (entry.alive and not (force and elsewhere)):
                raise StoreError(
                    f"{entry.run} needs no recovery: it is {describe.verdict(entry.manifest, entry.outcome)}",
                    hint=f"if {elsewhere} is gone, or has ended it: --force" if elsewhere else None,
                )
    else:
        chosen = [entry for entry in rundir.entries(results) if not entry.sealed and not entry.alive]
    if not chosen:
        print("nothing to recover")
    failed = 0
    for entry in chosen:
        try:
            print(f"{entry.run}: sealed as lost: {seal(entry, without=without)}")
        except OrchError as error:
            failed += 1
            print(f"{entry.run}: {error}")
    return 1 if failed else 0


def seal(entry: Entry, *, without: Sequence[str] = ()) -> Path:
    """Bring home what lies on the hosts of an unfinished run, and seal it; gives its folder. One at a time may.

    What hosts named in `without` have is given up.
    """
    with lock.machine(f"recovery-of-{entry.run}", holder(entry.run)):
        return _seal(entry, without)


def _seal(entry: Entry, without: Sequence[str]) -> Path:
    folder = RunFolder(entry.path, dict(entry.manifest))
    _refuse_links(entry.path)
    experiment, _ = loading.checked(entry.path / "experiment.yaml", (), dry_run=False)
    reducer = Reducer()
    try:
        testbed = loading.testbed_of(experiment.testbed, entry.run)
        hosts = entry.path / "hosts"
        for node in testbed.topology.nodes:
            if experiment.testbed.inventory is None:
                bring_up(safepath.under(hosts, f"{node.name}/{Path(node.folder(entry.run)).name}"), hosts / node.name)
        if experiment.testbed.inventory is not None:
            names = [
                name for name in _nodes(entry, {node.name for node in testbed.topology.nodes}) if name not in without
            ]
            try:
                fanout.each(
                    names,
                    lambda name: _bring_home(testbed.topology.node(name), testbed.connect, entry.run, hosts / name),
                    deadline=Deadline.after(FETCH_S),
                    what="recovering",
                )
            except OrchError as error:
                if error.node is not None:
                    error.hint = f"{error.hint or ''}; once it will not come back: --without {error.node}".lstrip("; ")
                raise
        manifest = folder.manifest
        told = manifest.get("error") or "the controller ended without putting the run down"
        manifest.update(outcome="lost", error=told)
        if without:
            manifest["notes"] = [*manifest.get("notes", []), f"given up: what {', '.join(without)} had of the run"]
        folder.save()
        try:
            reducer.reduce(folder)
        except OrchError as error:
            manifest["notes"] = [*manifest.get("notes", []), error.message]
    finally:
        reducer.close()
    sealing.judge(manifest, len(experiment.all_windows()))
    manifest.update(ended_ns=time.time_ns())
    folder.hash_files()
    return folder.seal()


def _refuse_links(folder: Path) -> None:
    """UnsafePath where what is to be written would go through a link: the folder may be somebody else's."""
    for name in ("hosts", "tables", "experiment.yaml"):
        safepath.under(folder, name)
    for path in (folder / "tables").glob("*"):
        safepath.under(folder, path.relative_to(folder).as_posix())


def _nodes(entry: Entry, known: Set[str]) -> list[str]:
    names = {launch["node"] for launch in entry.manifest["launches"]}
    if unknown := names - known:
        raise StoreError(f"its manifest has the host {min(unknown)!r}, its experiment has not")
    return sorted(names)


def _bring_home(node: Node, connect: Callable[[str, Deadline], Channel], run: str, home: Path) -> None:
    deadline = Deadline.after(FETCH_S)

    def reach() -> Leash:
        channel = connect(node.name, deadline.sooner(REACH_S))
        return Leash(node, channel, run=run, holder=holder(run), on_event=lambda _: None)

    leash = come_back(reach, deadline)
    try:
        leash.sweep(deadline, keep_data=True)
        fetch_all(leash, home, deadline)
    finally:
        leash.close(deadline)
