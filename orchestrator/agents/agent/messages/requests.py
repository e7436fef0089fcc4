"""The fields of each request to an agent, which takes them as keywords; the controller makes requests of these."""

from __future__ import annotations

from typing import Dict, List, Literal, Optional, Tuple, TypedDict, Union

Holder = Dict[str, object]  # who asks for a lock: kept, and told to whoever asks next; no agent looks into it


class Hello(TypedDict):
    """`hello`: whose agent it is to be, in which folder; after `silence_s` of silence it ends."""

    node: str
    run: str
    folder: str
    holder: Holder
    silence_s: float
    proof: str


class Lock(TypedDict):
    """`lock`: hold a lock of the whole node."""

    name: str
    holder: Holder


class Need(TypedDict):
    """One of the requirements of `check`; `python` is the interpreter that has to find a module."""

    kind: str
    what: str
    python: str


class Check(TypedDict):
    """`check`: whether this node has what a run needs."""

    requirements: List[Need]


class Container(TypedDict):
    """What a launch runs in; of each mount: where it lies, where it is seen, whether it may be written."""

    runtime: str
    image: str
    python: str
    mounts: List[Tuple[str, str, bool]]
    gpus: bool


class Image(TypedDict):
    """`storage` is the text of podman's storage.conf, where the host has none of its own."""

    container: Container
    modules: List[str]
    programs: List[str]
    storage: Optional[str]


class RunCommand(TypedDict):
    """`run_command`: run a short command to its end."""

    argv: List[str]
    timeout_s: float
    privileged: bool


class RunCommands(TypedDict):
    """`run_commands`: run short commands one after the other."""

    lines: List[List[str]]
    each_s: float
    timeout_s: float


class Read(TypedDict):
    """`read`: the texts of small files."""

    paths: List[str]
    globs: List[str]


class Put(TypedDict):
    """`put`: write a file of the run's folder; its content, compressed, is the payload."""

    path: str
    mode: int
    privileged: bool


class PutMore(Put):
    """`put`: what comes after that."""

    append: bool


class ReadyLine(TypedDict):
    """A launch is ready once a line of its file matches."""

    kind: Literal["line"]
    pattern: str
    file: str


class ReadyListening(TypedDict):
    """A launch is ready once something listens on the TCP port."""

    kind: Literal["listening"]
    port: int


class ReadyState(TypedDict):
    """A launch is ready at once, or once it has ended well."""

    kind: Literal["started", "exited"]


Ready = Union[ReadyLine, ReadyListening, ReadyState]


class _Start(TypedDict):
    name: str
    argv: List[str]
    env: Dict[str, str]
    ready: Ready
    ready_within_s: float
    gate: bool
    follow: Optional[str]
    privileged: bool


class Start(_Start, total=False):
    """`start`: start a launch, and answer once it is ready; `follow` is the file whose lines are sent."""

    container: Container


class Named(TypedDict):
    """`go`: the launch whose gate is opened."""

    name: str


Rung = Tuple[int, float]  # a signal, and how long to wait after it in seconds


class Stop(TypedDict):
    """`stop`: end a launch, signal by signal."""

    name: str
    signals: List[Rung]


class Signal(TypedDict):
    """`signal`: send a signal to a launch."""

    name: str
    number: int


class Wait(TypedDict):
    """`wait`: until a launch has ended."""

    name: str
    timeout_s: float


Sign = Tuple[List[str], str]  # a command, and the pattern of what it prints while a change stands


class Change(TypedDict):
    """`change`: change the node, once the way back is on its disk."""

    key: str
    undo: List[List[str]]
    apply: List[List[str]]
    sign: Optional[Sign]


class Undo(TypedDict):
    """`undo`: take a change back."""

    key: str


class Fetch(TypedDict):
    """`fetch`: a file from `offset` on, and the hash of its first `most` bytes."""

    path: str
    offset: int
    most: int


class DiskOf(TypedDict):
    """`disk`: the room at a path, or where the run's folder lies."""

    path: Optional[str]


class Sweep(TypedDict):
    """`sweep`: put down what dead agents left, and captures that stay for longer than so many seconds, if any."""

    work: str
    keep_data: bool
    forget: str
    stayed_s: Optional[float]


class Remove(TypedDict):
    """`remove`: delete the run's folder, but files to keep in it."""

    keep: List[str]
