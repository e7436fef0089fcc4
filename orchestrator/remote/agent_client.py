"""Client of an agent: the controller's requests to a node, each with a deadline and errors that name the node."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import msgspec

from orchestrator.agents.agent.checks import Findings
from orchestrator.agents.agent.commands import AllCompleted, Completed
from orchestrator.agents.agent.containers import ImageFound
from orchestrator.agents.agent.files import Disk, Listing, RunFile, Texts
from orchestrator.agents.agent.launches import Ended, Instant, Processes, Running, RunProcess
from orchestrator.agents.agent.ops import Clocks, Farewell, Greeting
from orchestrator.agents.agent.sweep import Swept
from orchestrator.core.deadline import Deadline
from orchestrator.core.errors import AgentError, BadAnswer, LaunchError, LockedError, OrchError
from orchestrator.core.lock import Holder
from orchestrator.core.machines import packages
from orchestrator.core.machines.remedies import BROKEN_PYTHON
from orchestrator.parts import secret_env
from orchestrator.parts.launch import Container, Launch, PresenceCheck, Requirement
from orchestrator.parts.protocols import Channel
from orchestrator.parts.topology import Node
from orchestrator.remote import files
from orchestrator.remote.clocks import ClockSample
from orchestrator.remote.connection import Connection
from orchestrator.remote.events import AgentEvent

CLOSE_S = 15.0
SILENCE_S = 120.0  # after which an agent that hears nothing takes its controller for dead
ENDING_S = 15.0  # for an agent that has lost its controller to put everything down
AGAIN_S = 0.2  # between two tries to come back
ANSWER_S = 5.0  # how much later than the agent's own time limit its answer, which says more than ours, may come
_SENT = ("name", "argv", "gate", "follow", "privileged", "container")  # of a launch as it is planned


@dataclass(frozen=True, slots=True)
class Finding:
    """Whether a requirement is met, and what was seen; `image` has the properties of a checked image."""

    requirement: Requirement
    found: bool
    detail: str
    image: ImageFound | None = None


class AgentClient:
    """The client of an agent on a node; several threads may send requests at once.

    `on_event` is called in a thread of the client and must not block or ask the client. An agent that hears nothing for
    `silence_s` takes its controller, or the network between, for dead; the client speaks up in time while it lives.
    `run_key` is what launches that ask for it share, `secrets` has the values of sources that launches name. A client
    with the `proof` of one before it, of the same run and node, ends that one's agent, which may be out of reach.
    """

    def __init__(
        self,
        node: Node,
        channel: Channel,
        *,
        run: str,
        holder: Holder,
        on_event: Callable[[AgentEvent], None],
        silence_s: float = SILENCE_S,
        run_key: str = "",
        proof: str = "",
        secrets: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.node = node
        self.folder = ""  # of the run on the node, once that was greeted
        self._run = run
        self._holder = dict(holder)
        self._silence_s = silence_s
        self._run_key = run_key
        self._proof = proof
        self._secrets = secrets
        self._connection = Connection(node.name, channel, on_event=on_event, silence_s=silence_s)

    def hello(self, deadline: Deadline, *, folder: str | None = None) -> Greeting:
        """Make the run's folder, in the node's work folder unless absolute, and return the agent's greeting."""
        values = {
            "node": self.node.name,
            "run": self._run,
            "folder": folder or self.node.folder(self._run),
            "holder": self._holder,
            "silence_s": self._silence_s,
            "proof": self._proof,
        }
        self._connection.await_greeting(deadline)
        greeting = self._connection.ask("hello", deadline, values).read(Greeting)
        self.folder = greeting.folder
        return greeting

    def lock(self, name: str, deadline: Deadline) -> None:
        """Hold a lock of the whole node until this agent ends, however it ends; LockedError names the holder."""
        self._connection.ask("lock", deadline, {"name": name, "holder": self._holder})

    def clock(self, samples: int, deadline: Deadline) -> ClockSample:
        """Measure the offset of the node's clock by several pings with four timestamps; the shortest round trip counts.

        The offset is the mean of both ways, as in NTP (RFC 5905, section 8); half the round trip bounds its error.
        """
        best: tuple[int, int] | None = None
        for _ in range(samples):
            ping = self._connection.ask("ping", deadline)
            there = ping.read(Clocks).wall_ns
            trip = (ping.received_ns - ping.sent_ns, (ping.sent_ns + ping.received_ns) // 2 - there)
            best = trip if best is None or trip[0] < best[0] else best
        if best is None:
            raise ValueError("a clock needs at least one sample")
        return ClockSample(best[1], (best[0] + 1) // 2)

    def check(self, requirements: Sequence[Requirement], deadline: Deadline, *, storage: str = "") -> list[Finding]:
        """Check a run's requirements on the node and then in images; findings of missing ones have a remedy.

        Images are not looked for where the node lacks something itself: their runtime, perhaps.
        """
        found = self._on_node([need for need in requirements if need.container is None], deadline)
        if all(finding.found for finding in found):
            for container in dict.fromkeys(need.container for need in requirements if need.container is not None):
                needs = [need for need in requirements if need.container == container]
                found += _look(self._connection, container, needs, deadline, storage=storage)
        return found

    def _on_node(self, requirements: Sequence[Requirement], deadline: Deadline) -> list[Finding]:
        wanted = [
            {"kind": need.kind, "what": need.what, "python": need.python or self.node.python} for need in requirements
        ]
        findings = self._connection.ask("check", deadline, {"requirements": wanted}).read(Findings).findings
        if len(findings) != len(wanted):
            raise BadAnswer(f"asked for {len(wanted)} findings, its agent has {len(findings)}", node=self.node.name)
        seen = [
            Finding(replace(need, remedy=BROKEN_PYTHON) if one.broken else need, one.found, one.detail)
            for need, one in zip(requirements, findings, strict=True)
        ]
        return seen if all(finding.found for finding in seen) else self._remedied(seen, deadline)

    def _remedied(self, findings: Sequence[Finding], deadline: Deadline) -> list[Finding]:
        texts = self.read(packages.OS_RELEASE, deadline).texts
        os_release = next((text for path in packages.OS_RELEASE if (text := texts.get(path))), "")

        def own(need: Requirement) -> Requirement:
            return replace(need, remedy=packages.own_remedy(need.what, need.remedy, os_release))

        return [replace(finding, requirement=own(finding.requirement)) for finding in findings]

    def run(self, argv: Sequence[str], deadline: Deadline, *, stdin: bytes = b"", privileged: bool = True) -> Completed:
        """Run a short command to its end and return its result, with the agent's own rights unless not `privileged`."""
        values = {"argv": list(argv), "timeout_s": deadline.remaining, "privileged": privileged}
        asked = self._connection.ask("run_command", deadline, values, payload=stdin, late_s=ANSWER_S, argv=argv)
        return asked.read(Completed)

    def run_all(self, lines: Sequence[Sequence[str]], deadline: Deadline, *, each_s: float) -> list[Completed | None]:
        """Run short commands one after the other by one request; None for one that cannot start or takes too long."""
        values = {"lines": [list(argv) for argv in lines], "each_s": each_s, "timeout_s": deadline.remaining}
        found = self._connection.ask("run_commands", deadline, values, late_s=ANSWER_S).read(AllCompleted).done
        if len(found) != len(lines):
            raise BadAnswer(f"asked for {len(lines)} commands, its agent has run {len(found)}", node=self.node.name)
        return list(found)

    def read(self, paths: Sequence[str], deadline: Deadline, *, globs: Sequence[str] = ()) -> Texts:
        """Read small files such as counters, all in one go; of each at most its last 256 KiB.

        A path that is not absolute is in the run's folder.
        """
        return self._connection.ask("read", deadline, {"paths": list(paths), "globs": list(globs)}).read(Texts)

    def put(self, path: str, content: bytes | Path, deadline: Deadline, *, privileged: bool = False) -> None:
        """Write a file in the run's folder; a Path is read here and stays executable if it is.

        What a privileged launch finds in its folder belongs to whom it runs as, like the folder.
        """
        files.put(self._connection, path, content, deadline, privileged=privileged)

    def start(self, launch: Launch, deadline: Deadline) -> Running:
        """Put a launch's files, start it, and return when it is ready; LaunchError with its last words otherwise."""
        values = _start_request(launch, deadline, run_key=self._run_key, secrets=self._secrets)
        try:
            for name, content in launch.files.items():
                self.put(f"{launch.name}/{name}", content, deadline, privileged=launch.privileged)
            return self._connection.ask("start", deadline, values, late_s=ANSWER_S, argv=launch.argv).read(Running)
        except (AgentError, OSError) as error:
            raise _not_started(launch, error) from error

    def go(self, name: str, deadline: Deadline, *, at_ns: int = 0, every_ns: int = 0) -> int:
        """Open a launch's gate; return when, by the node's clock in nanoseconds.

        It begins at `at_ns` of that clock, at once where that is 0, and its iterations `every_ns` from there on.
        """
        paced = {"at_ns": at_ns, "every_ns": every_ns} if at_ns else {}
        try:
            return self._connection.ask("go", deadline, {"name": name, **paced}).read(Instant).wall_ns
        except AgentError as error:
            message = f"{name} cannot go: {error.message}"
            raise LaunchError(message, node=self.node.name, tail=error.tail) from error

    def stop(self, launch: Launch, deadline: Deadline, *, grace: float = 1.0) -> Ended:
        """Stop a launch and its children by its own signals, then SIGKILL; grace periods are multiplied by `grace`."""
        signals = [(int(number), grace_s * grace) for number, grace_s in launch.stop.signals]
        values = {"name": launch.name, "signals": signals}
        return self._connection.ask("stop", deadline, values, late_s=ANSWER_S, argv=launch.argv).read(Ended)

    def signal(self, name: str, number: int, deadline: Deadline) -> None:
        """Send a signal to a launch's process group."""
        self._connection.ask("signal", deadline, {"name": name, "number": int(number)})

    def wait(self, name: str, deadline: Deadline) -> int:
        """Wait until a launch has ended; return its exit status."""
        values = {"name": name, "timeout_s": deadline.remaining}
        return self._connection.ask("wait", deadline, values, late_s=ANSWER_S).read(Ended).status

    def change(
        self,
        key: str,
        deadline: Deadline,
        *,
        undo: Sequence[Sequence[str]],
        apply: Sequence[Sequence[str]],
        presence: PresenceCheck | None = None,
    ) -> None:
        """Change something on the node; the undo is on its disk first, and is run when this client ends or breaks.

        Where the `presence` is not found any more then, there is nothing to undo.
        """
        values = {
            "key": key,
            "undo": [list(argv) for argv in undo],
            "apply": [list(argv) for argv in apply],
            "presence": None if presence is None else (list(presence.read), presence.pattern),
        }
        self._connection.ask("change", deadline, values)

    def undo(self, key: str, deadline: Deadline) -> None:
        """Take a change back."""
        self._connection.ask("undo", deadline, {"key": key})

    def files(self, deadline: Deadline) -> list[RunFile]:
        """Return every file in the run's folder, by path.

        The paths come from the node unchecked, and `fetch` checks them.
        """
        return list(self.contents(deadline).files)

    def contents(self, deadline: Deadline) -> Listing:
        """Return every file in the run's folder, and all else there: pipes, links, files that are nearly all holes."""
        return files.listed(self._connection, deadline)

    def fetch(self, file: RunFile, home: Path, deadline: Deadline) -> str:
        """Bring a file of the run's folder home, to its path below `home`, and return its SHA-256.

        It lies beside its destination as `*.part` until it is complete and its hash is right; an interrupted one is
        taken up where it stopped. UnsafePath for a path that leads elsewhere; BadAnswer when more comes than `bytes`;
        DeadlineExceeded when nothing came for `files.STALLED_S`, however slow what came was.
        """
        return files.fetch(self._connection, file, home, deadline)

    def disk(self, deadline: Deadline, *, path: str | None = None) -> Disk:
        """Return the disk space at `path`, or where the run's folder lies."""
        return self._connection.ask("disk", deadline, {"path": path}).read(Disk)

    def processes(self, deadline: Deadline) -> list[RunProcess]:
        """Return the processes of this run on the node, by descent and by tag, except its agent."""
        return list(self._connection.ask("list_processes", deadline).read(Processes).processes)

    def sweep(
        self,
        deadline: Deadline,
        *,
        keep_data: bool,
        work: str | None = None,
        forget: str = "",
        stayed_s: float | None = None,
    ) -> Swept:
        """Clean up after dead agents on the node: end processes, undo changes and, unless kept, remove folders.

        What cannot be taken back of the run `forget` is not tried again. Captures that have stayed for `stayed_s`
        seconds are removed; without a number none are.
        """
        values = {"work": work or self.node.work, "keep_data": keep_data, "forget": forget, "stayed_s": stayed_s}
        return self._connection.ask("sweep", deadline, values).read(Swept)

    def remove(self, deadline: Deadline, *, keep: Sequence[str] = ()) -> None:
        """Delete the run's folder on the node but files to `keep`; refused while processes or changes remain."""
        self._connection.ask("remove", deadline, {"keep": list(keep)})

    def close(self, deadline: Deadline | None = None) -> None:
        """End everything of the run on the node, undo all changes and have the agent exit.

        AgentError names what failed.
        """
        reply = self._connection.close(deadline or Deadline.after(CLOSE_S))
        if reply is None:
            return
        farewell = reply.read(Farewell)
        if farewell.failed or farewell.left:
            tail = "\n".join(f"{change.id}: {change.tail}" for change in farewell.failed)
            left = f"; processes that would not end: {list(farewell.left)}" if farewell.left else ""
            message = f"{len(farewell.failed)} changes could not be taken back{left}"
            raise AgentError(message, node=self.node.name, tail=tail, hint="`orch clean` tries again")


def come_back(
    reach: Callable[[], AgentClient],
    deadline: Deadline,
    *,
    patience_s: float = ENDING_S,
    waiting: Callable[[LockedError], None] = lambda _: None,
) -> AgentClient:
    """Connect again to a node where this run's previous agent may still be ending things by itself.

    `reach` makes a client each time it is called; `waiting` is called once if the previous agent is still there.
    """
    patience = deadline.sooner(patience_s)
    last: LockedError | None = None
    while True:
        client = reach()
        try:
            client.hello(deadline)
        except LockedError as error:
            client.close(deadline)
            if patience.expired:
                raise
            if last is None:
                waiting(error)
            last = error
            time.sleep(AGAIN_S)
        except OrchError:
            client.close(deadline)
            raise
        else:
            return client


def _look(
    connection: Connection, container: Container, needs: Sequence[Requirement], deadline: Deadline, *, storage: str
) -> list[Finding]:
    """Check an image and, in it, these needs; the finding of the kind "image" has the image's identity.

    `storage` is the text of podman's storage.conf for hosts that have none of their own, else empty.
    """
    values = {
        "container": msgspec.to_builtins(container),
        "modules": [need.what for need in needs if need.kind == "module"],
        "programs": [need.what for need in needs if need.kind == "program"],
        "storage": storage or None,
    }
    try:
        asked = connection.ask("image", deadline, values)
    except AgentError as error:
        return [_refused(need, error) for need in needs]
    image = asked.read(ImageFound)
    found = []
    for need in needs:
        if need.kind == "image":
            found.append(Finding(need, True, image.image, image=image))
            continue
        looked_for = image.modules if need.kind == "module" else image.programs
        if need.what not in looked_for:
            raise BadAnswer(f"its agent's answer to 'image' lacks {need.what!r}", node=connection.node)
        there, detail = looked_for[need.what]
        found.append(Finding(need, there, detail))
    return found


def _refused(need: Requirement, error: AgentError) -> Finding:
    """Return findings for an image that cannot be used: it is missing, and nothing in it counts as missing too."""
    if need.kind != "image":
        return Finding(need, True, "")
    hint = error.hint or need.remedy
    return Finding(replace(need, remedy=hint), False, error.message)


def _start_request(
    launch: Launch, deadline: Deadline, *, run_key: str, secrets: Mapping[str, str]
) -> dict[str, object]:
    """Return the keywords of the agent's `start` for a launch whose files lie in its folder."""
    given = {launch.run_key: run_key} if launch.run_key else {}
    return {
        **{name: msgspec.to_builtins(getattr(launch, name)) for name in _SENT},
        "env": {**launch.env, **secret_env.filled(launch, secrets), **given},
        "ready": {"kind": type(launch.ready).__name__.lower(), **msgspec.to_builtins(launch.ready)},
        "ready_within_s": min(launch.ready_within_s, deadline.remaining),
    }


def _not_started(launch: Launch, error: OrchError | OSError) -> LaunchError:
    """Return the error of a launch that does not run: its files could not be put, or it did not start or get ready."""
    if isinstance(error, OSError):
        return LaunchError(f"files of {launch.name} cannot be written on the node: {error}", node=launch.node)
    return LaunchError(
        f"{launch.name} {error.message}" if error.tail or error.argv else f"{launch.name}: {error.message}",
        node=launch.node,
        argv=launch.argv,
        tail=error.tail,
        hint=error.hint,
    )
