"""Have hosts reduce the captures that stay with them, and record which ones lie where.

What a host runs for that is an archive of the modules that it takes, which any Python runs. What reads captures while
they are written goes on until `reduce_run`, whose program on the host has it finish.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import io
import json
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from orchestrator.agents.agent.files import RunFile
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import DeadlineExceeded, Interrupted, OrchError, TransportError
from orchestrator.core.interrupts import Twice
from orchestrator.core.paths import safepath
from orchestrator.execution.session import CALL_S, Session
from orchestrator.parts.launch import Launch, Line, Started
from orchestrator.parts.shared import capture_files
from orchestrator.parts.shared.capture_files import AS_THEY_CLOSE, CLOSING, READING, REDUCED, CapturePoint
from orchestrator.remote.agent_client import AgentClient
from orchestrator.store.manifests.capture_points import CAPTURING, capture_points
from orchestrator.store.manifests.records import Manifest, Stayed

REDUCE_S = 12 * 3600.0  # of all captures of a host
COMPILED_S = 300.0  # within which a reader is there, which a busy host that never read captures compiles first
LOOK_S = 1.0  # how often it is looked whether that is called off
TRIES = 3  # at a reduction that somebody kills; what one has done the next does not do again
POINTS = "points.json"

PROGRAM = "orchestrator.analysis.on_host"
# Started by its name: it compiles what `stages` has, where no machine code lies.
BESIDE = "orchestrator.analysis.capture.stages.compiling"
ARCHIVE = "reduce.pyz"

_ROOT = Path(__file__).parents[3]
_PACKAGE = __name__.partition(".")[0]
_DATE = (1980, 1, 1, 0, 0, 0)  # the earliest that the format has: equal modules make equal archives
# The reader of captures looks for its own files, so that they have to lie in a folder while it runs. Machine code is
# not kept there (-B), but in the user's cache, where the next run finds it.
_START = f"""import os, runpy, shutil, sys, zipfile
if sys.version_info < (3, 10):
    sys.exit("captures are reduced by Python 3.10 or later, and this is %d.%d" % sys.version_info[:2])
code = os.path.abspath("code")
shutil.rmtree(code, ignore_errors=True)
try:
    with zipfile.ZipFile("{ARCHIVE}") as archive:
        archive.extractall(code)
    os.unlink("{ARCHIVE}")
    sys.path[0] = code
    runpy.run_module("{PROGRAM}", run_name="__main__")
finally:
    shutil.rmtree(code, ignore_errors=True)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturesLeft:
    """The captures that stay on a node, in the folder of the run there; `trouble` is why they were not reduced.

    `later`: the node can reduce them yet, and was not given the time.
    """

    folder: str
    files: tuple[RunFile, ...]
    trouble: str = ""
    later: bool = False


def is_capture(manifest: Manifest, node: str, path: str) -> bool:
    """Whether a file of a node is one of a capture, by its path in the run's folder there."""
    launches = [one.name for one in manifest.launches if one.part == CAPTURING and one.node == node]
    return capture_files.launch_of(path, launches) is not None


def stays(manifest: Manifest, left: Collection[str], node: str, path: str) -> bool:
    """Whether a file stays on its node: one of a capture, where the node has said which it has; else all come home."""
    return node in left and is_capture(manifest, node, path)


def read_as_they_close(session: Session, manifest: Manifest) -> None:
    """Have every host that captures begin to read what it captured; one that cannot is noted, and reads at the end."""

    def begin(client: AgentClient) -> str:
        launch = _launch(client, CLOSING, capture_points(manifest, client.node.name), AS_THEY_CLOSE)
        try:
            client.start(launch, Deadline.after(COMPILED_S))
        except TransportError:
            raise
        except OrchError as error:
            return f"{client.node.name}: captures are read after the last window, not as they close: {error.message}"
        return ""

    capturing = {one.node for one in manifest.launches if one.part == CAPTURING} & set(session.away)
    notes = session.each(sorted(capturing), begin, what="reading captures", seconds=COMPILED_S + CALL_S)
    session.watch.notes += filter(None, notes.values())


def reduce_run(session: Session, manifest: Manifest, say: Callable[[str], None]) -> dict[str, CapturesLeft]:
    """Have every host reduce its captures, all at once; hosts that are lost meanwhile are left out.

    Two signals end that on all hosts.
    """
    deadline = Deadline.after(REDUCE_S)
    twice = Twice(
        session.interrupts.signals,
        lambda: say(f"hosts reduce their captures: Ctrl-C ends that, `orch recover {manifest.run}` has it done later"),
    )

    def reduced(client: AgentClient) -> CapturesLeft | OrchError:
        try:
            left = reduce_there(client, manifest, deadline, called_off=lambda: session.interrupts.ended_by(twice))
        except OrchError as error:
            return error  # whoever is lost is told by what is to be fetched
        with suppress(OrchError):
            _end_reading(client)
        return left

    found = session.each(sorted(session.away), reduced, what="reducing captures", seconds=REDUCE_S + CALL_S)
    return {node: left for node, left in found.items() if isinstance(left, CapturesLeft)}


def reduce_there(
    client: AgentClient, manifest: Manifest, deadline: Deadline, *, called_off: Callable[[], bool] = lambda: False
) -> CapturesLeft:
    """Have a host reduce the captures of a run, and say which there are; TransportError where it is lost.

    Once that is `called_off` the host ends what it has begun.
    """
    node = client.node.name
    files = tuple(file for file in client.files(deadline.sooner(CALL_S)) if is_capture(manifest, node, file.path))
    try:
        trouble = _reduce(client, capture_points(manifest, node), deadline, called_off) if files else ""
    except Interrupted as error:
        why = f"{error.message}; `orch recover {manifest.run}` has it do so"
        return CapturesLeft(folder=client.folder, files=files, trouble=why, later=True)
    return CapturesLeft(folder=client.folder, files=files, trouble=trouble)


def _reduce(
    client: AgentClient, points: Sequence[CapturePoint], deadline: Deadline, called_off: Callable[[], bool]
) -> str:
    """Why captures were not reduced; empty when they were. Interrupted where that was called off."""
    for attempt in range(1, TRIES + 1):
        launch = _launch(client, REDUCED if attempt == 1 else f"{REDUCED}.{attempt}", points)
        try:
            client.start(launch, deadline.sooner(CALL_S))
            status = _waited(client, launch, deadline, called_off)
        except TransportError:
            raise
        except OrchError as error:
            with suppress(OrchError):
                client.stop(launch, Deadline.after(CALL_S))  # while it runs the run's folder cannot be left
            if isinstance(error, Interrupted):
                raise
            return error.message
        if status >= 0:  # nobody killed it
            break
    return "" if status == 0 else f"it ended with status {status}: {_last_line(client, launch)}"


def _waited(client: AgentClient, launch: Launch, deadline: Deadline, called_off: Callable[[], bool]) -> int:
    """Return the status with which a launch ends; Interrupted once it is called off."""
    while not called_off():
        try:
            return client.wait(launch.name, deadline.sooner(LOOK_S))
        except DeadlineExceeded:
            if deadline.expired:
                raise
    raise Interrupted("Ctrl-C ended that")


def _launch(client: AgentClient, name: str, points: Sequence[CapturePoint], *how: str) -> Launch:
    document = json.dumps([dataclasses.asdict(point) for point in points]).encode()
    return Launch(
        name=name,
        node=client.node.name,
        role="collector",
        argv=(client.node.python, "-B", ARCHIVE, POINTS, *how),
        files={ARCHIVE: packed_code(), POINTS: document},
        ready=Line(READING) if how else Started(),
        ready_within_s=COMPILED_S,
        lives=False,
    )


def _end_reading(client: AgentClient) -> None:
    """End what read captures as they closed, where a host was not asked for all that it has, or gave up."""
    for process in client.processes(Deadline.after(CALL_S)):
        if process.name == CLOSING:
            client.stop(_launch(client, CLOSING, ()), Deadline.after(CALL_S))


def _last_line(client: AgentClient, launch: Launch) -> str:
    texts = client.read([f"{launch.name}/stderr"], Deadline.after(CALL_S)).texts
    return next((line for text in texts.values() for line in reversed((text or "").splitlines())), "it said nothing")


def recorded(left: Mapping[str, CapturesLeft], hosts: Path) -> tuple[tuple[Stayed, ...], list[str]]:
    """Return what stayed on nodes as manifests keep it, and a note on each that could not reduce it.

    `hosts` is the folder of what is home of all nodes.
    """
    hashes = {
        node: _hashes(hosts / node, {file.path.partition("/")[0] for file in there.files})
        for node, there in left.items()
    }
    found = [
        Stayed(
            path=f"hosts/{node}/{file.path}",
            bytes=file.bytes,
            sha256=hashes[node].get(file.path, ""),
            node=node,
            folder=there.folder,
        )
        for node, there in left.items()
        for file in there.files
    ]
    notes = [
        f"{node}: its captures stay there and were not reduced: {there.trouble}"
        for node, there in left.items()
        if there.trouble
    ]
    return tuple(sorted(found, key=lambda one: one.path)), notes


def _hashes(home: Path, launches: Iterable[str]) -> dict[str, str]:
    """Return the hashes of captures' files by their paths, as their host says them.

    Without those that it does not say.
    """
    found: dict[str, str] = {}
    for launch in launches:
        with suppress(OrchError):
            safepath.under(home, f"{REDUCED}/{launch}.json")
            found.update((f"{launch}/{one.name}", one.sha256) for one in capture_files.kept(home / launch) or ())
    return found


@functools.cache
def packed_code() -> bytes:
    """Return the archive, as Python's `zipapp` makes them; packages are empty in it but for the modules in them."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:

        def add(name: str, text: bytes) -> None:
            archive.writestr(zipfile.ZipInfo(name, _DATE), text, zipfile.ZIP_DEFLATED, compresslevel=9)

        add("__main__.py", _START.encode())
        modules = sorted(_needed(PROGRAM, BESIDE))
        above = {str(folder) for module in modules for folder in Path(*module.split(".")).parents} - {"."}
        for folder in sorted(above):
            add(f"{folder}/__init__.py", b"")
        for module in modules:
            path = _source(module)
            add(path.relative_to(_ROOT).as_posix(), path.read_bytes())
    return written.getvalue()


def _needed(*modules: str) -> set[str]:
    """Return these modules and all that they import of ours, wherever the import stands."""
    found: set[str] = set()
    left = list(modules)
    while left:
        module = left.pop()
        if module not in found:
            found.add(module)
            left += _imported(module)
    return found


def _imported(module: str) -> Iterator[str]:
    path = _source(module)
    for node in ast.walk(ast.parse(path.read_bytes(), str(path))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == _PACKAGE:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            yield from (name for name in names if _source(name).is_file())


def _source(module: str) -> Path:
    return _ROOT.joinpath(*module.split(".")).with_suffix(".py")
