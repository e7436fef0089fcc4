"""Types of the messages between a local testbed's sandbox and its owner, for type checkers alone."""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple, TypedDict, Union


class SwitchSetup(TypedDict):
    """Lines of `ip` and of `tc` for the switch, and its devices without offloads."""

    ip: List[str]
    tc: List[str]
    plain: List[str]


class NodeSetup(TypedDict):
    """The same of a host, or of a switch's own node, its files with their modes, and its sshd.

    `network` says whether it has a network of its own, or that of the sandbox; the other nodes are set up once those
    that are `first` have been.
    """

    name: str
    folder: str
    work: str
    network: bool
    first: bool
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
    """The owner's later messages: the node of which it wants a socket."""

    socket: str


class Failure(TypedDict, total=False):
    """A failure: what failed, in which step of which node."""

    error: str
    step: str
    argv: List[str]
    tail: str
    node: Optional[str]


class Outcome(Failure, total=False):
    """The builder's message: the PID of every node, or a failure."""

    pids: Dict[str, int]


class Answer(Failure, total=False):
    """The sandbox's answer: the seconds that it took, the node whose socket comes along, or a failure."""

    ready: float
    socket: str
