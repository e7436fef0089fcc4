"""What agents say, as values: events on their own account, and answers to requests, each read from a reply's fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.core.errors import TransportError
from orchestrator.parts.launch import Launch, Requirement
from orchestrator.remote.replies import Fields


@dataclass(frozen=True, slots=True)
class ProcessExited:
    """A started process has ended; a negative status is a signal's number. `wall_ns` is the node's clock."""

    node: str
    name: str
    status: int
    wall_ns: int


@dataclass(frozen=True, slots=True)
class LineRead:
    """A whole line of a followed file; `wall_ns` is when the agent read it, by the node's clock."""

    node: str
    name: str
    text: str
    wall_ns: int


@dataclass(frozen=True, slots=True)
class AgentLost:
    """The channel ended and nobody had asked for it, or nothing was heard on it for too long.

    `error` says why, and blames whom it seems to be the fault of; `since` is an instant of our monotonic clock.
    """

    node: str
    error: TransportError
    since: float

    @property
    def reason(self) -> str:
        return self.error.message + (f"\n{self.error.tail}" if self.error.tail else "")


AgentEvent = ProcessExited | LineRead | AgentLost


@dataclass(frozen=True, slots=True)
class Greeting:
    """What an agent says of itself; `user` is whom it drops to, when it runs under sudo, `folder` the run's there."""

    pid: int
    uid: int
    user: str | None
    folder: str
    python: str
    executable: str
    hostname: str
    boot: str
    wall_ns: int
    monotonic_ns: int

    @classmethod
    def read(cls, reply: Fields) -> Greeting:
        return cls(
            pid=reply.integer("pid", least=1),
            uid=reply.integer("uid", least=0),
            user=reply.text_or_none("user"),
            folder=reply.text("folder"),
            python=reply.text("python"),
            executable=reply.text("executable"),
            hostname=reply.text("hostname"),
            boot=reply.text("boot"),
            wall_ns=reply.integer("wall_ns"),
            monotonic_ns=reply.integer("monotonic_ns"),
        )


@dataclass(frozen=True, slots=True)
class ClockSample:
    """Controller's clock minus the node's, known to within `uncertainty_ns` either way."""

    offset_ns: int
    uncertainty_ns: int


@dataclass(frozen=True, slots=True)
class ImageFound:
    """Which very image a name means on a node, and the versions of the runtime there and of the image's Python."""

    id: str
    version: str
    python: str


@dataclass(frozen=True, slots=True)
class Finding:
    """Whether a requirement is met, and what was seen; of an image which one."""

    requirement: Requirement
    found: bool
    detail: str
    image: ImageFound | None = None


@dataclass(frozen=True, slots=True)
class Completed:
    """How a command ended, with what it printed (at most 1 MiB each)."""

    status: int
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class Texts:
    """Small files of the node, as they were at `wall_ns` of its clock; None for one that cannot be read."""

    wall_ns: int
    texts: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Disk:
    """Room where a run's folder lies."""

    free_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class Running:
    """A launch that is ready; instants of the node's clock."""

    pid: int
    started_ns: int
    ready_ns: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """How a launch ended: `was_over` before it was asked to, `killed` because neither it nor its children would go.

    `complaint` is empty when the status is one that its launch accepts after being asked.
    """

    status: int
    killed: bool
    was_over: bool
    ended_ns: int
    user_s: float
    system_s: float
    max_rss_bytes: int
    tail: str
    complaint: str = ""

    @classmethod
    def read(cls, reply: Fields, launch: Launch) -> Stopped:
        status, was_over = reply.integer("status"), reply.flag("was_over")
        complaint = ""
        if not was_over and status not in launch.stop.ok:
            complaint = f"{launch.name} ended with status {status} when it was asked to end"
        return cls(
            status=status,
            killed=reply.flag("killed"),
            was_over=was_over,
            ended_ns=reply.integer("ended_ns"),
            user_s=reply.number("user_s"),
            system_s=reply.number("system_s"),
            max_rss_bytes=reply.integer("max_rss_bytes", least=0),
            tail=reply.text("tail"),
            complaint=complaint,
        )


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file in the run's folder on the node, by its path in it."""

    path: str
    bytes: int


@dataclass(frozen=True, slots=True)
class RemoteLeft:
    """What lies in the run's folder on the node and does not come home, and why; what is `kept` there holds data."""

    path: str
    why: str
    kept: bool


@dataclass(frozen=True, slots=True)
class RemoteProcess:
    """A process of the run on the node; `name` is its launch's, or empty; `run` is set by a sweep."""

    pid: int
    argv: tuple[str, ...]
    name: str = ""
    run: str = ""


@dataclass(frozen=True, slots=True)
class StayedThere:
    """Captures of a run that stay in a folder of a node, for how many seconds so far; `removed` tells of their end."""

    folder: str
    run: str
    files: int
    bytes: int
    age_s: float
    removed: bool


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep found and did: folders are absolute, `undone` and `already` are keys of changes.

    The latter did not stand any more. `failed` and `forgotten` are sentences.
    """

    killed: tuple[RemoteProcess, ...]
    left: tuple[int, ...]
    undone: tuple[str, ...]
    already: tuple[str, ...]
    failed: tuple[str, ...]
    forgotten: tuple[str, ...]
    removed: tuple[str, ...]
    kept: tuple[str, ...]
    stayed: tuple[StayedThere, ...]
    alive: tuple[str, ...]

    @classmethod
    def read(cls, reply: Fields) -> Swept:
        failed = (
            ": ".join(filter(None, (change.text("id"), " ".join(change.texts("argv")), change.text("tail"))))
            for change in reply.each("failed")
        )
        killed = (
            RemoteProcess(process.integer("pid", least=1), process.texts("argv"), run=process.text("run"))
            for process in reply.each("killed")
        )
        return cls(
            killed=tuple(killed),
            left=reply.integers("left"),
            undone=reply.texts("undone"),
            already=reply.texts("already"),
            failed=tuple(failed),
            forgotten=tuple(f"{change.text('id')}: {change.text('what')}" for change in reply.each("forgotten")),
            removed=reply.texts("removed"),
            kept=reply.texts("kept"),
            stayed=tuple(
                StayedThere(
                    folder=one.text("folder"),
                    run=one.text("run"),
                    files=one.integer("files", least=0),
                    bytes=one.integer("bytes", least=0),
                    age_s=one.number("age_s"),
                    removed=one.flag("removed"),
                )
                for one in reply.each("stayed")
            ),
            alive=reply.texts("alive"),
        )
