"""Brings home what a run left on nodes: few files at a time, none without room for all, and none for long in vain."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import OrchError, StoreError, TransportError, UnsafePath
from orchestrator.execution.session import Session
from orchestrator.remote import transfers
from orchestrator.remote.agent_client import AgentClient
from orchestrator.remote.answers import RemoteFile

FETCH_S = 24 * 3600.0  # of a whole run; no file may stand still for long
LIST_S = 20.0
REMOVE_S = 20.0
Stays = Callable[[str, str], bool]  # whether a file of a node stays there, by the node and its path
AGENT_MARKER = ".orch-run.json"  # how an agent says that a folder is a run's; nothing of the results


def nothing_stays(_node: str, _path: str) -> bool:
    """That all files come home."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """What a node has of a run: the files that are to come home, and the paths of those that stay."""

    home: tuple[RemoteFile, ...]
    stay: tuple[str, ...]


def fetch_run(session: Session, run_folder: Path, *, stays: Stays = nothing_stays) -> None:
    """Bring the run's files home but those that stay, and remove its folders from nodes; an error names who is lost.

    A node that does not say what it has keeps nobody from bringing home what the others have.
    """
    deadline = Deadline.after(FETCH_S)
    found = session.each(
        sorted(session.away), lambda client: listed(client, stays), what="listing files", seconds=2 * LIST_S
    )
    refuse_without_room(run_folder, {name: files for name, files in found.items() if not isinstance(files, OrchError)})

    def fetch(client: AgentClient) -> None:
        name = client.node.name
        seen, home = session.testbed.local_folder(name), run_folder / "hosts" / name
        if seen is not None:
            bring_up(seen / Path(client.node.folder(session.run)).name, home)
        elif isinstance(files := found[name], OrchError):
            raise files
        else:
            bring_home(client, files, home, deadline)
        session.away.discard(name)

    there = [name for name in session.clients if name in found or session.testbed.local_folder(name) is not None]
    session.each(there, fetch, what="fetching", seconds=FETCH_S)
    # An agent that was lost before its greeting has made no folder.
    lost = [
        name for name in session.watch.lost if name in session.clients and session.testbed.local_folder(name) is None
    ]
    if lost:
        raise TransportError(f"files of the run are still on {', '.join(lost)}: {session.watch.lost[lost[0]]}")


def refuse_without_room(folder: Path, listed: Mapping[str, Files]) -> None:
    """StoreError where the files of all nodes together have no room below a folder, which is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    promised = sum(file.bytes for files in listed.values() for file in files.home)
    free = shutil.disk_usage(folder).free
    if promised > free:
        nodes = ", ".join(sorted(listed))
        raise StoreError(
            f"the files of {nodes} are {promised} bytes, and {folder} has room for {free}; none was fetched",
            hint="make room, then `orch recover`",
        )


def listed(client: AgentClient, stays: Stays) -> Files | OrchError:
    """The files of the run's folder on a node, or why it does not say which there are."""
    try:
        return _split(client, stays, Deadline.after(LIST_S))
    except OrchError as error:
        return error


def _split(client: AgentClient, stays: Stays, deadline: Deadline) -> Files:
    files = client.files(deadline)
    kept = tuple(file.path for file in files if stays(client.node.name, file.path))
    there = frozenset(kept)
    return Files(home=tuple(file for file in files if file.path not in there), stay=kept)


def fetch_all(client: AgentClient, home: Path, deadline: Deadline, *, stays: Stays = nothing_stays) -> None:
    """Bring the files of the run's folder on a node home but those that stay, if there is room; remove the others."""
    listed = _split(client, stays, deadline.sooner(LIST_S))
    refuse_without_room(home, {client.node.name: listed})
    bring_home(client, listed, home, deadline)


def bring_home(client: AgentClient, listed: Files, home: Path, deadline: Deadline) -> None:
    """Bring these files of the run's folder on a node home, then remove the folder there but what stays.

    A name that leads elsewhere is UnsafePath: all other files come home, and the node keeps its folder.
    """
    home.mkdir(parents=True, exist_ok=True)
    refused: list[str] = []
    for file in listed.home:
        try:
            with transfers.turn(deadline, node=client.node.name):
                client.fetch(file, home, deadline)
        except UnsafePath as error:
            refused.append(error.message)
    if refused:
        more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
        raise UnsafePath(refused[0] + more, node=client.node.name, hint="they stay on the node; see who put them there")
    client.remove(deadline.sooner(REMOVE_S), keep=listed.stay)


def bring_up(run_folder: Path, home: Path) -> None:
    """Move what a node left in its run's folder, visible here, to where results keep it."""
    if run_folder.is_dir():
        home.mkdir(parents=True, exist_ok=True)
        for entry in run_folder.iterdir():
            if entry.name == AGENT_MARKER:
                entry.unlink()
            else:
                entry.rename(home / entry.name)
        run_folder.rmdir()
