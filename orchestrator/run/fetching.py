"""Brings what a run left on nodes home: few files at a time, none without room for all, and none for long in vain."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import OrchError, StoreError, UnsafePath
from orchestrator.remote import transfers
from orchestrator.remote.agent_client import AgentClient
from orchestrator.remote.answers import RemoteFile

LIST_S = 20.0
REMOVE_S = 20.0


def refuse_without_room(folder: Path, listed: Mapping[str, Sequence[RemoteFile]]) -> None:
    """StoreError where the files of all nodes together have no room below a folder, which is made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    promised = sum(file.bytes for files in listed.values() for file in files)
    free = shutil.disk_usage(folder).free
    if promised > free:
        told = ", ".join(sorted(listed))
        raise StoreError(
            f"the files of {told} are {promised} bytes, and {folder} has room for {free}; nothing of them was fetched",
            hint="make room, then `orch recover`",
        )


def listed(client: AgentClient) -> list[RemoteFile] | OrchError:
    """The files of the run's folder on a node, or why it does not say which there are."""
    try:
        return client.files(Deadline.after(LIST_S))
    except OrchError as error:
        return error


def fetch_all(client: AgentClient, home: Path, deadline: Deadline) -> None:
    """Bring every file of the run's folder on a node home, if there is room, then remove the folder there."""
    listed = client.files(deadline.sooner(LIST_S))
    refuse_without_room(home, {client.node.name: listed})
    bring_home(client, listed, home, deadline)


def bring_home(client: AgentClient, listed: Sequence[RemoteFile], home: Path, deadline: Deadline) -> None:
    """Bring these files of the run's folder on a node home, then remove the folder there.

    A name that leads elsewhere is UnsafePath: all other files come home, and the node keeps its folder.
    """
    home.mkdir(parents=True, exist_ok=True)
    refused: list[str] = []
    for file in listed:
        try:
            with transfers.turn(deadline, node=client.node.name):
                client.fetch(file, home, deadline)
        except UnsafePath as error:
            refused.append(error.message)
    if refused:
        more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
        raise UnsafePath(refused[0] + more, node=client.node.name, hint="they stay on the node; see who put them there")
    client.remove(deadline.sooner(REMOVE_S))
