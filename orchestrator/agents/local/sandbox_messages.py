"""What a local testbed's sandbox and its owner tell each other, for type checkers: the sandbox imports nothing."""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple, TypedDict, Union


class SwitchSetup(TypedDict):
    """Lines of `ip` and of `tc` for the switch, and its devices without offloads."""

    ip: List[str]
    tc: List[str]
    plain: List[str]


class NodeSetup(TypedDict):
    """A host, or the switch as it is reached: likewise, its files with their modes, and its sshd."""

    name: str
    folder: str
    work: str
    links: List[str]
    ip: List[str]
    tc: List[str]
    plain: List[str]
    sysctls: Dict[str, Union[int, str]]
    files: Dict[str, Tuple[int, str]]
    sshd: List[str]
    joins: bool


class Setup(TypedDict):
    """The owner's first message; `neighbours` are MACs by device and address."""

    files: Dict[str, str]
    bind: List[Tuple[str, str]]
    limit_s: float
    ip: int
    neighbours: Dict[str, Dict[str, str]]
    switch: SwitchSetup
    nodes: List[NodeSetup]


class SocketRequest(TypedDict):
    """What the owner says from then on: the node of which it wants a socket."""

    socket: str


class Failure(TypedDict, total=False):
    """What failed, in which step of which node; nothing of it where nothing has."""

    error: str
    step: str
    argv: List[str]
    tail: str
    node: Optional[str]


class Outcome(Failure, total=False):
    """What the process that builds says: the PID of every node, or a failure."""

    pids: Dict[str, int]


class Answer(Failure, total=False):
    """What the owner hears: the seconds that it took, the node whose socket comes along, or a failure."""

    ready: float
    socket: str
