"""Bring home what a run left on nodes: few files at a time, small ones first, as far as there is room.

What one process left keeps nobody's data away. Pipes, links and devices do not come home; a file that does not fit
here, is nearly all holes or cannot be read stays on its node, is named, and is fetched by `orch recover` later.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.agents.agent.files import RunFile, SkippedFile
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import AgentError, BadAnswer, OrchError, TransportError, UnsafePath
from orchestrator.core.paths import safepath
from orchestrator.core.units import bytes_text
from orchestrator.execution.session import Session
from orchestrator.remote import transfers
from orchestrator.remote.agent_client import AgentClient

FETCH_S = 24 * 3600.0  # of a whole run; no file may stand still for long
LIST_S = 20.0
REMOVE_S = 20.0
SPARE_BYTES = 256 << 20  # that stay free here, for tables and the manifest; of a small disk a twentieth
_LONGEST_SHOWN = 200  # characters of a path
NAMED = 3  # of the files of a node that did not come home for one reason
MOST_KINDS = 8  # of such reasons that are told
MOST_KEPT = 1000  # files on a node; where more have to stay, its whole folder does
Stays = Callable[[str, str], bool]  # whether a file of a node stays there, by the node and its path
AGENT_MARKER = ".orch-run.json"  # how an agent says that a folder is a run's; nothing of the results


def nothing_stays(_node: str, _path: str) -> bool:
    """Say of every file that it comes home."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """What a node has of a run: files that are to come home, paths of those that stay, and what cannot come home."""

    home: tuple[RunFile, ...]
    stay: tuple[str, ...]
    left: tuple[SkippedFile, ...] = ()

    def without(self, lacking: Mapping[str, str]) -> Files:
        """Return the same where these paths stay on their node, by why."""
        kept = [SkippedFile(path, why, kept=True) for path, why in lacking.items()]
        home = tuple(file for file in self.home if file.path not in lacking)
        return replace(self, home=home, left=(*self.left, *kept))


def fetch_run(session: Session, run_folder: Path, *, stays: Stays = nothing_stays) -> None:
    """Bring the run's files home but those that stay, and remove its folders from nodes; an error names who is lost.

    `session.left` says what did not come home. A node that does not say what it has keeps nobody from bringing home
    what the others have.
    """
    deadline = Deadline.after(FETCH_S)
    found = session.each(
        sorted(session.away), lambda client: listed(client, stays), what="listing files", seconds=2 * LIST_S
    )
    fitting = with_room(run_folder, {name: files for name, files in found.items() if not isinstance(files, OrchError)})

    def fetch(client: AgentClient) -> None:
        name = client.node.name
        seen, home = session.testbed.local_folder(name), run_folder / "hosts" / name
        if seen is not None:
            session.left[name] = bring_up(seen / Path(client.node.folder(session.run)).name, home)
        elif isinstance(files := found[name], OrchError):
            raise files
        else:
            session.left[name] = bring_home(client, fitting[name], home, deadline)
        session.away.discard(name)

    there = [name for name in session.clients if name in found or session.testbed.local_folder(name) is not None]
    session.each(there, fetch, what="fetching", seconds=FETCH_S)
    # An agent that was lost before its greeting has made no folder.
    lost = [
        name for name in session.watch.lost if name in session.clients and session.testbed.local_folder(name) is None
    ]
    if lost:
        raise TransportError(f"files of the run are still on {', '.join(lost)}: {session.watch.lost[lost[0]]}")


def notes(node: str, left: Sequence[SkippedFile], run: str) -> list[str]:
    """Return what is to be said of files that did not come home from a node.

    Those that are kept there, and those that are no results, are told apart.
    """
    found = []
    kept = [one for one in left if one.kept]
    if kept:
        found.append(
            f"{node}: {_named(kept)} did not come home: `orch recover {run} --testbed FILE` tries again, "
            "`orch clean --stayed 0s` deletes"
        )
    if odd := [one for one in left if not one.kept]:
        found.append(f"{node}: not among the results: {_named(odd)}")
    return found


def has_more(left: Iterable[SkippedFile]) -> bool:
    """Whether a node keeps files that have to be fetched yet."""
    return any(one.kept for one in left)


def _named(left: Sequence[SkippedFile]) -> str:
    """Return some of each kind, with why."""
    alike: dict[str, list[str]] = {}
    for one in left:
        alike.setdefault(one.why, []).append(_shown(one.path))
    kinds = [f"{_first(paths)} ({why})" for why, paths in alike.items()]
    return _first(kinds, most=MOST_KINDS)


def _first(words: Sequence[str], most: int = NAMED) -> str:
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return ", ".join(words[:most]) + more


def _shown(path: str) -> str:
    return path if path.isprintable() and len(path) <= _LONGEST_SHOWN else ascii(path[:_LONGEST_SHOWN])


def with_room(folder: Path, listed: Mapping[str, Files]) -> dict[str, Files]:
    """Return the files of all nodes that have room together below a folder, which is made if need be.

    Small ones first.
    """
    folder.mkdir(parents=True, exist_ok=True)
    room = _room(folder)
    lacking: dict[str, dict[str, str]] = {node: {} for node in listed}
    everything = [(file.bytes, node, file.path) for node, files in listed.items() for file in files.home]
    for size, node, path in sorted(everything):
        if size > room:
            lacking[node][path] = no_room(size, folder)
        else:
            room -= size
    return {node: files.without(lacking[node]) for node, files in listed.items()}


def no_room(size: int, folder: Path) -> str:
    """Say that a file of so many bytes has no room below a folder."""
    return f"{bytes_text(size)}, and {folder} has room for {bytes_text(_room(folder))}"


def _room(folder: Path) -> int:
    disk = shutil.disk_usage(folder)
    return max(0, disk.free - min(SPARE_BYTES, disk.total // 20))


def listed(client: AgentClient, stays: Stays) -> Files | OrchError:
    """Return the files of the run's folder on a node, or why it does not say which there are."""
    try:
        return _split(client, stays, Deadline.after(LIST_S))
    except OrchError as error:
        return error


def _split(client: AgentClient, stays: Stays, deadline: Deadline) -> Files:
    files, left = client.contents(deadline)
    kept = tuple(file.path for file in files if stays(client.node.name, file.path))
    there = frozenset(kept)
    return Files(home=tuple(file for file in files if file.path not in there), stay=kept, left=tuple(left))


def fetch_all(
    client: AgentClient, home: Path, deadline: Deadline, *, stays: Stays = nothing_stays
) -> Sequence[SkippedFile]:
    """Bring the files of the run's folder on a node home but those that stay, as far as there is room; remove them.

    Gives what did not come home.
    """
    name = client.node.name
    listed = _split(client, stays, deadline.sooner(LIST_S))
    return bring_home(client, with_room(home, {name: listed})[name], home, deadline)


def bring_home(client: AgentClient, listed: Files, home: Path, deadline: Deadline) -> Sequence[SkippedFile]:
    """Bring these files of the run's folder on a node home, then remove the folder there but what stays.

    What cannot be fetched stays there too: a name that leads elsewhere, what has no room here after all, what the
    agent cannot read. Gives what did not come home.
    """
    home.mkdir(parents=True, exist_ok=True)
    lacking: dict[str, str] = {}
    for file in sorted(listed.home, key=lambda file: file.bytes):
        try:
            with transfers.turn(deadline, node=client.node.name):
                client.fetch(file, home, deadline)
        except UnsafePath as error:
            lacking[file.path] = error.message
        except BadAnswer:
            raise
        except AgentError as error:
            lacking[file.path] = error.message
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            safepath.under(home, file.path + ".part").unlink(missing_ok=True)
            lacking[file.path] = no_room(file.bytes, home)
    done = listed.without(lacking)
    keep = {*done.stay, *(one.path for one in done.left if one.kept)}
    if len(keep) - len(done.stay) > MOST_KEPT:
        return done.left
    client.remove(deadline.sooner(REMOVE_S), keep=sorted(keep))
    return done.left


def bring_up(run_folder: Path, home: Path) -> Sequence[SkippedFile]:
    """Move what a node left in its run's folder, visible here, to where results keep it.

    What is no file is removed. Gives what that was, and files that nobody will read since they are nearly all holes.
    """
    left: list[SkippedFile] = []
    if run_folder.is_dir() and not run_folder.is_symlink():
        home.mkdir(parents=True, exist_ok=True)
        for entry in run_folder.iterdir():
            try:
                if entry.name == AGENT_MARKER:
                    entry.unlink()
                else:
                    entry.rename(home / entry.name)
            except OSError as error:  # something else has its name: it stays where it is, which is below `home` too
                left.append(SkippedFile(entry.name, f"{error.strerror}; it is in {run_folder.name}", kept=False))
        if not any(run_folder.iterdir()):
            run_folder.rmdir()
    if home.is_dir():
        left += _only_files(home)
    return left


def _only_files(home: Path) -> Iterable[SkippedFile]:
    """Remove what is no file from a folder and those in it, and tell of it; also of files that are nearly all holes."""
    for place, folders, names, there in os.fwalk(home, follow_symlinks=False):
        for name in (*folders, *names):
            about = os.stat(name, dir_fd=there, follow_symlinks=False)
            path = Path(place, name).relative_to(home).as_posix()
            if not (stat.S_ISREG(about.st_mode) or stat.S_ISDIR(about.st_mode)):
                os.unlink(name, dir_fd=there)
                yield SkippedFile(path, safepath.kind_of(about.st_mode), kept=False)
            elif about.st_size - about.st_blocks * 512 > safepath.MOST_HOLES and stat.S_ISREG(about.st_mode):
                try:
                    safepath.opened(Path(place, name)).close()
                except UnsafePath as error:
                    yield SkippedFile(path, f"{error.message}; it is here all the same", kept=False)
