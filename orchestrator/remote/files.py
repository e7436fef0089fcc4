"""Files of a run's folder on a node: put there in parts, listed, and fetched so that an interrupted fetch goes on."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from orchestrator.agents.agent.files import Fetched, Listing, RunFile
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import AgentError, BadAnswer, DeadlineExceeded
from orchestrator.core.paths import safepath
from orchestrator.remote.connection import Connection

PUT_CHUNK = 1 << 20
STALLED_S = 60.0  # without a byte of a file that is fetched
HASHED_BPS = 50e6  # bytes a second, at least, at which a node reads over what is home already
MOST_FILES = 100_000  # of a run on one node, as agents keep to


def put(
    connection: Connection, path: str, content: bytes | Path, deadline: Deadline, *, privileged: bool = False
) -> None:
    """Write a file in the run's folder; a Path is read here and stays executable if it is."""
    values = {"path": path, "mode": 0o644, "privileged": privileged}
    if isinstance(content, Path):
        if content.stat().st_mode & 0o100:
            values["mode"] = 0o755
        with content.open("rb") as file:
            _put_parts(connection, iter(lambda: file.read(PUT_CHUNK), b""), values, deadline)
    else:
        parts = (content[at : at + PUT_CHUNK] for at in range(0, len(content), PUT_CHUNK))
        _put_parts(connection, parts, values, deadline)


def _put_parts(connection: Connection, parts: Iterator[bytes], values: dict[str, object], deadline: Deadline) -> None:
    connection.ask("put", deadline, values, payload=zlib.compress(next(parts, b"")))
    more = {**values, "append": True}
    for part in parts:
        connection.ask("put", deadline, more, payload=zlib.compress(part))


def listed(connection: Connection, deadline: Deadline) -> Listing:
    """Return every file in the run's folder, by path, and what else lies there.

    BadAnswer for too many files, or one that is listed twice.
    """
    listing = connection.ask("files", deadline).read(Listing)
    count = len(listing.files)
    if count > MOST_FILES:
        raise BadAnswer(f"its agent lists {count} files; accepted: {MOST_FILES}", node=connection.node)
    if len({file.path for file in listing.files}) < count:
        raise BadAnswer("its agent lists a file of its run's folder twice", node=connection.node)
    return listing


def fetch(connection: Connection, file: RunFile, home: Path, deadline: Deadline) -> str:
    """Fetch a file to its path below `home`, beside it as `*.part` until it is whole; return its SHA-256."""
    destination = safepath.under(home, file.path)
    part = destination.with_name(destination.name + ".part")
    digest = hashlib.sha256()
    with safepath.appendable(home, file.path + ".part") as kept:
        size = offset = _hash_into(digest, kept)
        patience = deadline.patient(STALLED_S + offset / HASHED_BPS)

        def sink(data: bytes) -> None:
            nonlocal size
            size += len(data)
            if size > file.bytes:
                raise BadAnswer(f"{file.path}: more comes than the {file.bytes} bytes listed", node=connection.node)
            kept.write(data)
            digest.update(data)
            patience.renew()

        values = {"path": file.path, "offset": offset, "most": file.bytes}
        try:
            wanted = connection.ask("fetch", patience, values, sink=sink).read(Fetched).sha256
        except DeadlineExceeded as error:
            error.message = (
                f"{file.path}: nothing came for {patience.seconds:.0f} s, after {size} of {file.bytes} bytes"
            )
            error.hint = "the network to the node, or the node, stands still"
            raise
    if wanted != digest.hexdigest():
        part.unlink()
        raise AgentError(f"{file.path} changed while it was fetched", node=connection.node, hint="fetch it again")
    with safepath.passable(file.path):
        part.replace(destination)
    return wanted


def _hash_into(digest: Any, file: BinaryIO) -> int:
    """Add what a file holds already to the hash; return its size in bytes."""
    file.seek(0)
    size = 0
    while data := file.read(PUT_CHUNK):
        digest.update(data)
        size += len(data)
    return size
