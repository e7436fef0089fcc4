"""The fields of each answer and event of an agent; the controller reads them one by one (`remote/answers.py`)."""

from __future__ import annotations

from typing import Dict, List, Literal, Optional, Tuple, TypedDict


class Nothing(TypedDict):
    """It is done, and there is nothing to say of it."""


class Greeting(TypedDict):
    """To `hello`: who answers; `user` is whom it drops to under sudo."""

    pid: int
    uid: int
    user: Optional[str]
    folder: str
    python: str
    executable: str
    hostname: str
    boot: str
    wall_ns: int
    monotonic_ns: int


class Clocks(TypedDict):
    """To `ping`."""

    wall_ns: int
    monotonic_ns: int


class Finding(TypedDict):
    """Of one requirement whether it is met, and what was seen; `broken` is that the interpreter asked does not run."""

    found: bool
    detail: str
    broken: bool


class Findings(TypedDict):
    """To `check`, in the order asked."""

    findings: List[Finding]


class ImageProbe(TypedDict):
    """What a container of an image says: its Python, its namespaces; of what it should have whether, and where."""

    python: str
    modules: Dict[str, Tuple[bool, str]]
    programs: Dict[str, Tuple[bool, str]]
    net: str
    ipc: str


class ImageFound(ImageProbe):
    """`image` is which very one it is, `version` the runtime's."""

    image: str
    version: str


class Completed(TypedDict):
    """To `run_command`; a negative status is a signal's number."""

    status: int
    stdout: str
    stderr: str


class AllCompleted(TypedDict):
    """To `run_commands`; null for one that could not start, or took too long."""

    done: List[Optional[Completed]]


class Texts(TypedDict):
    """To `read`; null for what cannot be read."""

    wall_ns: int
    texts: Dict[str, Optional[str]]


class Running(TypedDict):
    """To `start`; instants of the node's clock."""

    pid: int
    started_ns: int
    ready_ns: int


class Instant(TypedDict):
    """To `go`: when, by the node's clock."""

    wall_ns: int


class Ended(TypedDict):
    """To `wait`."""

    status: Optional[int]
    killed: bool
    ended_ns: int
    user_s: float
    system_s: float
    max_rss_bytes: int
    tail: str


class Stopped(Ended):
    """To `stop`."""

    was_over: bool


class Process(TypedDict):
    """One that still runs of a run; `name` is its launch's, or empty."""

    pid: int
    argv: List[str]
    name: str


class Processes(TypedDict):
    """To `list_processes`."""

    processes: List[Process]


class File(TypedDict):
    """One of the run's folder, by its path in it."""

    path: str
    bytes: int


class Left(TypedDict):
    """What is not among a run's files, and why; `kept`: it holds data, and stays where it is."""

    path: str
    why: str
    kept: bool


class Listing(TypedDict):
    """To `files`; of what is `left` the first ones."""

    files: List[File]
    left: List[Left]


class Fetched(TypedDict):
    """To `fetch`, after the file."""

    sha256: str
    size: int


class Disk(TypedDict):
    """To `disk`."""

    free_bytes: int
    total_bytes: int


class Failure(TypedDict):
    """A command of a change that failed; without a status where it could not be run."""

    argv: List[str]
    status: Optional[int]
    tail: str


class FailedChange(Failure):
    """A change that could not be taken back."""

    id: str


class ForgottenChange(TypedDict):
    """A change that nobody tries to take back any more."""

    id: str
    what: str


class Stray(TypedDict):
    """A process of a run whose agent is dead."""

    pid: int
    argv: List[str]
    run: str


class StayedFolder(TypedDict):
    """A folder of a run that was left with captures in it; they stay for `age_s` seconds, and may be removed now."""

    folder: str
    run: str
    files: int
    bytes: int
    age_s: float
    removed: bool


class SweptFolders(TypedDict):
    """What was done to folders of dead agents, and to their changes."""

    undone: List[str]
    already: List[str]
    failed: List[FailedChange]
    forgotten: List[ForgottenChange]
    removed: List[str]
    kept: List[str]
    stayed: List[StayedFolder]


class Swept(SweptFolders):
    """To `sweep`; `alive` are runs that still have an agent."""

    killed: List[Stray]
    left: List[int]
    alive: List[str]


class Farewell(TypedDict):
    """What an agent says at its end: changes, and processes that would not go."""

    undone: List[str]
    already: List[str]
    failed: List[FailedChange]
    left: List[int]


class LinesEvent(TypedDict):
    """Whole lines of a followed file."""

    event: Literal["lines"]
    name: str
    lines: List[str]
    wall_ns: int


class ExitEvent(TypedDict):
    """A launch has ended."""

    event: Literal["exit"]
    name: str
    status: Optional[int]
    wall_ns: int
