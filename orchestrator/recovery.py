"""After a bad day: `orch recover` seals what an unfinished run left, `orch clean` ends what is left on hosts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path

from orchestrator import describe, fanout, loading, lock, safepath, sealing
from orchestrator.answers import Swept
from orchestrator.deadline import Deadline
from orchestrator.errors import OrchError, StoreError
from orchestrator.leash import Leash, come_back
from orchestrator.protocols import Channel
from orchestrator.sealing import Reducer
from orchestrator.session import bring_up, fetch_all, holder
from orchestrator.store import rundir
from orchestrator.store.rundir import Entry, RunFolder
from orchestrator.testbed import leftovers
from orchestrator.testbed.inventory import Inventory, InventoryTestbed
from orchestrator.topology import Node
from orchestrator.transport import local

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


def clean(target: str | None, *, data: bool) -> int:
    """End processes and take back changes of dead runs on the hosts of a testbed, or on this machine."""
    if target is None:
        here = Node(name="localhost")
        done, failed = leftovers.remove(images=data)
        return _report({here.name: _sweep(here, local.connect(), data=data)}, done=done, failed=failed)
    found = loading.inventory_or_experiment(Path(target))
    inventory = found if isinstance(found, Inventory) else found.testbed.inventory
    if inventory is None:
        return clean(None, data=data)  # a local testbed ends with its controller; what is left would be here
    testbed = InventoryTestbed(inventory)
    deadline = Deadline.after(REACH_S)

    def ask(name: str) -> Swept | OrchError:
        try:
            return _sweep(testbed.topology.node(name), testbed.connect(name, deadline), data=data)
        except OrchError as error:
            return error  # told beside what the other hosts say

    hosts = [host.name for host in testbed.topology.hosts]
    return _report(fanout.each(hosts, ask, deadline=Deadline.after(2 * REACH_S), what="cleaning"))


def _sweep(node: Node, channel: Channel, *, data: bool) -> Swept:
    deadline = Deadline.after(REACH_S)
    run = f"clean-{time.time_ns()}"
    leash = Leash(node, channel, run=run, holder=holder(run), on_event=lambda _: None)
    try:
        leash.hello(deadline)
        swept = leash.sweep(deadline, keep_data=not data)
        leash.remove(deadline)
    finally:
        leash.close(deadline)
    return swept


def _report(swept: Mapping[str, Swept | OrchError], *, done: Sequence[str] = (), failed: Sequence[str] = ()) -> int:
    """Print what became of each node, and what else was done, or failed, on this machine."""
    trouble = 0
    for node, result in swept.items():
        if isinstance(result, OrchError):
            trouble += 1
            print(f"{node}: {result.message}" + (f"\n  remedy: {result.hint}" if result.hint else ""))
            continue
        lines = [
            f"ended process {process.pid} of run {process.run}: {' '.join(process.argv)}" for process in result.killed
        ]
        lines += [f"took back {change}" for change in result.undone]
        lines += [f"removed {folder}" for folder in result.removed]
        lines += [f"kept {folder} (--data removes it)" for folder in result.kept]
        lines += [f"left alone: run {run} is alive" for run in result.alive if not run.startswith("clean-")]
        bad = [f"process {pid} would not end" for pid in result.left] + [
            f"could not undo {what}" for what in result.failed
        ]
        bad += failed
        trouble += len(bad)
        for line in [*done, *lines, *bad] or ["nothing of ours is left"]:
            print(f"{node}: {line}")
    return 1 if trouble else 0
