"""Files of captures, in the run's folder and on a host that keeps them, and the addresses at a capture point."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.core.errors import StoreError, UnsafePath
from orchestrator.core.paths import safepath
from orchestrator.parts.launch import Flow

FILE = "capture.pcap"
REDUCED = "captures"  # beside the folders of a host's launches: what it made of captures that stay there
AS_THEY_CLOSE = "as-they-close"  # how they may be read: file by file, while the run goes on
CLOSING = f"{REDUCED}.{AS_THEY_CLOSE}"  # beside those folders, too: of the program that does so
READING = "captures are read as they close"  # says it once it is there
_CHUNK = 1 << 20
_LISTENING = re.compile(r"listening on ([^\s,]+)")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NUMBERED = re.compile(re.escape(FILE) + r"(\d*)")
_AT_HOME = re.compile(re.escape(FILE) + r"(\d*)(\.gz)?")  # as `orch prune` compresses them


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturePoint:
    """A port that a launch captured, and what is known of who is who there.

    `addresses` are the node's own on that port; at a switch's port, which has none, `peers` are those of the host
    behind it. `flows` name what passes; `generated` are those of flow generators, whose bursts are followed.
    `offset_ns` is added to every stamp. `segment` is the MTU of a device that cuts packets after they are captured, or
    joins them before (segmentation offload): wire bytes are then those of such frames. `dilation` multiplies the widths
    of bins of time.
    """

    launch: str
    port: str
    addresses: tuple[str, ...] = ()
    peers: tuple[str, ...] = ()
    flows: tuple[Flow, ...] = ()
    generated: tuple[Flow, ...] = ()
    offset_ns: int = 0
    segment: int | None = None
    dilation: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StayedFile:
    """A file of a capture that stayed on its host, by the host's own word: its name, size and hash."""

    name: str
    bytes: int
    sha256: str


def keep(path: Path) -> StayedFile:
    """Return what is to be said of a file of a capture that stays."""
    digest = hashlib.sha256()
    with safepath.opened(path) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return StayedFile(name=path.name, bytes=path.stat().st_size, sha256=digest.hexdigest())


def listening(folder: Path) -> str | None:
    """Return the device that tcpdump captured, by what it wrote in its folder; None when it never began."""
    match = _LISTENING.search(safepath.text(folder / "stderr"))
    return match[1] if match else None


def device(argv: Sequence[str]) -> str:
    """Return the device that a launch of tcpdump captures, by its arguments; empty when they name none."""
    return argv[argv.index("-i") + 1] if "-i" in argv[:-1] else ""


def in_order(folder: Path) -> list[Path]:
    """Return the files of a capture in the order in which they were written.

    What has such a name and is no file is none.
    """
    numbered = {path: _AT_HOME.fullmatch(path.name) for path in folder.glob(FILE + "*") if _is_plain(path)}
    found = {path: int(name[1] or 0) for path, name in numbered.items() if name}
    return sorted(found, key=lambda path: found[path])


def captured_bytes(path: Path) -> int:
    """How large a file of a capture is, or was before it was compressed."""
    with safepath.opened(path) as file:
        if path.suffix != ".gz":
            return os.fstat(file.fileno()).st_size
        with gzip.open(file) as plain:
            return sum(map(len, iter(lambda: plain.read(_CHUNK), b"")))


def _is_plain(path: Path) -> bool:
    try:
        with safepath.opened(path):
            return True
    except UnsafePath:
        return False


def launch_of(path: str, launches: Sequence[str]) -> str | None:
    """Return the launch among these whose capture a file of a host is, by its path in the run's folder there.

    None for others.

    The path is the host's own word.
    """
    launch, _, name = path.partition("/")
    return launch if launch in launches and _NUMBERED.fullmatch(name) else None


def _is_sound(one: StayedFile) -> bool:
    named = bool(_NUMBERED.fullmatch(one.name) and _SHA256.fullmatch(one.sha256))
    return named and type(one.bytes) is int and one.bytes >= 0


def kept(folder: Path) -> list[StayedFile] | None:
    """Return the files of a capture that its host keeps and has reduced, by the folder of its launch.

    None of any other.

    StoreError where the host says nonsense.
    """
    record = folder.parent / REDUCED / f"{folder.name}.json"
    if (said := safepath.content(record)) is None:
        return None
    try:
        found = [StayedFile(**one) for one in json.loads(said)]
        sound = all(map(_is_sound, found))
    except (ValueError, TypeError, RecursionError):
        sound = False
    if not sound:
        raise StoreError(f"{record.name} is no list of files of a capture")
    return found
