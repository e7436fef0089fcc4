"""Launches and changes of a run, as plain data: built without I/O, carried out by the runner."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

# What parts ask for.
PRIVILEGES = (
    "root", "CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_NET_RAW of tcpdump", "CAP_SYS_NICE", "perf events",
    "programs in the kernel",
)  # fmt: skip
Role = Literal["collector", "traffic", "rank", "condition"]


@dataclass(frozen=True, slots=True)
class Started:
    """Ready as soon as the process runs."""


@dataclass(frozen=True, slots=True)
class Line:
    """Ready when a line that matches `pattern` (a regular expression, searched) is in `file` of its folder."""

    pattern: str
    file: str = "stdout"


@dataclass(frozen=True, slots=True)
class Listening:
    """Ready when something on the node listens on this TCP port."""

    port: int


@dataclass(frozen=True, slots=True)
class Exited:
    """Ready when the process has ended with status 0."""


Ready = Started | Line | Listening | Exited


@dataclass(frozen=True, slots=True)
class Stop:
    """How a process is asked to end: each signal in turn, with so many seconds of grace; then it is killed.

    `drain_s`: the least time in seconds between the end of what is measured and the first signal.
    `ok`: exit statuses that are no failure once it was asked to end (a negative one is a signal's number).
    """

    signals: tuple[tuple[int, float], ...] = ((signal.SIGTERM, 3.0),)
    drain_s: float = 0.0
    ok: tuple[int, ...] = (0, -signal.SIGTERM, -signal.SIGINT, -signal.SIGKILL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """Traffic that a launch makes on the data plane, so that a capture can be told apart.

    `kind` is what the table of flows calls it ("training", "cross", "control"); `name` the job or the traffic source.
    A `None` matches anything. Ports are TCP or UDP; the first Flow that matches a 5-tuple in either direction names it.
    """

    kind: str
    name: str
    src: str | None = None  # data-plane address of one end
    dst: str | None = None  # data-plane address of the other end
    port: int | None = None  # on either end


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What a process takes of its machine, roughly.

    `memory` of its own in bytes, `start_s` seconds of a processor until it is ready, and so many processors that it
    keeps `busy` while it is measured.
    """

    memory: float = 10e6
    start_s: float = 0.05
    busy: float = 0.0


Runtime = Literal["podman", "docker", "enroot", "pyxis"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A folder of a host, and where a container sees it."""

    source: str
    target: str
    writable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """What a launch runs in on its node: a container of an image, with the node's network and shared memory.

    It sees the launch's folder at the same path, and RDMA devices where the node has them.
    """

    runtime: Runtime
    image: str
    python: str = "python3"  # the image's interpreter
    mounts: tuple[Mount, ...] = ()
    gpus: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchFacts:
    """What a plan says of a process and a manifest keeps of it; `store.manifests.records.Launch` is the record.

    `part` is who made it and reads what it brings home: "traffic.iperf".
    """

    name: str  # unique in a run; letters, digits, '.', '-' and '_'
    node: str
    part: str
    role: Role
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    env_from: Mapping[str, str] = field(default_factory=dict)  # name -> where its value is, which is kept nowhere
    files: Mapping[str, object] = field(default_factory=dict)  # by their names in its folder
    privileged: bool = False  # needs the agent's rights on the node: root's, or some of them
    required: bool = True  # its failure ends the run; else it is noted
    job: str | None = None
    rank: int | None = None
    window: str | None = None
    source: str | None = None
    wrapped_by: tuple[str, ...] = ()  # of a rank: the parts whose commands run around it, the innermost first
    flows: tuple[Flow, ...] = ()
    container: Container | None = None  # then its argv is a command of the image


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch(LaunchFacts):
    """One process of a run on one node. The plan fills in its `part`, `window` and `source`.

    Its folder on the node is named after it and is its working directory; `stdout` and `stderr` are files in it, and
    everything in it comes home. Nothing of it passes through a shell.
    """

    part: str = ""
    files: Mapping[str, bytes | Path] = field(default_factory=dict)  # name in its folder -> content, put there first
    order: int = 0  # within its stage lower ones are started, and ready, before higher ones
    ready: Ready = field(default_factory=Started)
    ready_within_s: float = 10.0
    run_key: str | None = None  # environment variable for the run's key: a random text, kept nowhere
    gate: bool = False  # waits for the line "go" on its standard input once it is ready
    ports: tuple[int, ...] = ()  # TCP ports that it listens on, beside the one by which it is ready
    follow: str | None = None  # a file in its folder whose lines the runner gets as they are written
    stop: Stop = field(default_factory=Stop)
    lives: bool = True  # an exit before it was asked to end is a failure
    footprint: Footprint = field(default_factory=Footprint)
    after_ranks: bool = False  # of a collector: it is started once the ranks run, with their process ids in its argv


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapper:
    """A command that runs around a rank's, such as `time -v`: its words stand in front of the rank's own.

    It works in a folder of its own below the rank's, with `files` in it, and all that it leaves there comes home. The
    rank's exit status and the signals that the rank gets are as without it.
    """

    argv: tuple[str, ...]
    files: Mapping[str, bytes | Path] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """Something a node must have before a run starts.

    kind "program": `what` is a program's name, found on PATH or in the sbin folders.
    kind "module": `what` is a Python module that `python` on the node can import; "python>=3.10": it is so new itself.
    kind "privilege": `what` is "root" or a capability of Linux ("CAP_NET_ADMIN") that the agent must be able to pass
    on to what it starts; "CAP_NET_RAW of tcpdump": or that program has it by its file. "perf events": performance
    events of a process may be counted, at least while it runs in user space. "programs in the kernel": a program may
    be loaded into it and attached to network devices (eBPF by TCX).
    kind "device": `what` is a network device of the node.
    kind "link": `what` is a network device that is up and has a carrier.
    kind "mtu": `what` is "9000 on eth0", the MTU in bytes that the device has.
    kind "speed": `what` is "25000 Mbit/s on eth0", which the device reaches, where its driver tells how fast it is.
    kind "port": `what` is a TCP port on which nobody listens yet.
    kind "image": `what` is the image of `container`, of which a container can be started.

    Programs and modules with a `container` are looked for in its image.
    """

    node: str
    kind: Literal["program", "module", "privilege", "device", "link", "mtu", "speed", "port", "image"]
    what: str
    python: str = ""
    container: Container | None = None
    remedy: str
    needed_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HitCounter:
    """How often a change did what it does: `parse` gives packets that it might have hit, and packets that it hit.

    Read before the change is undone. `share` is the probability that was asked for; without one hits are noted alone.
    """

    read: tuple[str, ...]
    parse: Callable[[str], tuple[int, int]]
    share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PresenceCheck:
    """What shows, on the node itself, that a change stands: `pattern` is found in what `read` prints, line by line.

    A regular expression of Python 3.8. Where nothing is found, somebody else has taken the change back or made another.
    """

    read: tuple[str, ...]
    pattern: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A reversible change of one thing on one node.

    `read` is a command whose output tells the state; `parse` turns that output into a canonical text of it. `apply`
    and `undo` give commands (argument lists) from the old state as `parse` returned it. After `apply` the state must
    equal what `expect` gives; after `undo` it must equal the old state. `presence` tells whoever finds the change later
    whether it still stands, from the old state too. All five functions are pure and raise ValueError, with a sentence
    for people, where they cannot: a state that could not be restored is refused.
    `process` is what the change needs to have its effect: started after it, ended before it is undone.
    """

    node: str
    name: str  # unique in a run, for people: "rate of h1:eth0"
    kind: str  # the condition's name in the YAML
    read: tuple[str, ...]
    parse: Callable[[str], str]
    apply: Callable[[str], list[tuple[str, ...]]]
    undo: Callable[[str], list[tuple[str, ...]]]
    expect: Callable[[str], str]
    presence: Callable[[str], PresenceCheck]
    hits: HitCounter | None = None
    shared: bool = False  # several conditions may ask for it, all alike: it is made once
    process: Launch | None = None
