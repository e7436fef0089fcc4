"""Starts flows at absolute instants and sends them to sinks, each logged from its planned start to its acknowledgement.

One file, since its schedule, its connections and its log share one loop and its state. Run as
`python -I -S -B flow_sender.py SPEC`, with flow_drawing.py beside it. SPEC is a JSON file with

    source       address to send from, or "" for any
    start        {address, port} of the sink that has all senders start together
    sinks        list of {address, ports}
    streams      specs of flow_drawing.drawn; or
    recorded     {path, factor, length_s} of flow_drawing.recorded
    mtu, workers, most_open, drain_s, dscp, congestion, pool, realtime

This process draws the schedule and deals the flows out to forked workers, which send. "sending" on standard output
says that the schedule begins. SIGTERM or SIGINT stops at once and logs what is open; after the last flow of a schedule
the workers wait `drain_s` for what is open, and the exit status is 0.

Each worker writes flows.N.bin: MAGIC, the wall clock in nanoseconds at the start, then a RECORD for every flow, in the
order in which they ended. Instants in a record are nanoseconds since the start, -1 for what never happened.
"""

from __future__ import annotations

import collections
import errno
import gc
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
from typing import Any, Literal, TypedDict

MYPY = False
if MYPY:
    from cross_traffic.agents.flow_drawing import StreamSpec

MAGIC = b"orch-flows-1\n\0\0\0"
HEAD = struct.Struct("<16sq")
# number, planned, start, connected, last byte, acknowledged, size, sent, sink, source port, port, error, retransmits
RECORD = struct.Struct("<QqqqqqQQHHHHI4x")
EVENT = struct.Struct("<qqqq")  # number, planned, size, sink
HEADER = struct.Struct("<QQ")
START = (1 << 64) - 1

HEADERS = {socket.AF_INET: 52, socket.AF_INET6: 72}  # of a segment: IP, TCP and its timestamps

# Errors beyond the kernel's numbers.
SHED, UNFINISHED, CLOSED, STARVED = 1000, 1001, 1002, 1003

SPIN_NS = 60_000  # how long before a flow is due its worker stops sleeping
LAUNCHES_A_TURN = 16
# Flows that wait for nothing but this process. With so many, none is started before some are sent: a worker that went
# on starting them when it was late sent 16 connections a quantum, and hardly a byte at three times what it can send.
MOST_READY = 128
LATEST_NS = 100_000_000  # how late a flow may be started meanwhile; a later one is shed
QUANTUM_BYTES = 512 << 10
LOWAT_BYTES = 1 << 20
LOOK_NS = 50_000  # while there is something to send, how often to look for events
LOW_WATER = 1024  # flows that a worker knows of before it asks for more
FLUSH_RECORDS = 1024
FLUSH_NS = 500_000_000
NAP_NS = 100_000_000  # the longest sleep: a signal is looked at after it
LEAD_NS = 50_000_000  # from the common start to the schedule's zero
READY_NS = 1_000_000  # how long before the schedule's zero the sender says that it sends
BARRIER_S = 30.0
PIPE_BYTES = 1 << 20

IP_BIND_ADDRESS_NO_PORT = 24
TCP_NOTSENT_LOWAT = 25
F_SETPIPE_SZ = 1031
PR_SET_PDEATHSIG = 1
RETRANSMITS = struct.Struct("<100xI")  # tcpi_total_retrans of struct tcp_info
NO_LINGER = struct.pack("ii", 1, 0)
IN, OUT, EDGE, BAD = select.EPOLLIN, select.EPOLLOUT, select.EPOLLET, select.EPOLLERR | select.EPOLLHUP


class RecordedSpec(TypedDict):
    """A file of flows (nanoseconds, bytes, sink), its sizes times `factor`, again after `length_s`."""

    path: str
    factor: float
    length_s: float | None


class StartSpec(TypedDict):
    """The sink that has all senders start together."""

    address: str
    port: int


class TargetSpec(TypedDict):
    """A sink, as a sender sees it."""

    address: str
    ports: list[int]


class _SenderSpec(TypedDict):
    source: str
    start: StartSpec
    sinks: list[TargetSpec]
    streams: list[StreamSpec]
    recorded: RecordedSpec | None
    mtu: int
    workers: int
    most_open: int
    drain_s: float
    dscp: int
    congestion: str
    pool: bool
    realtime: bool


class SenderSpec(_SenderSpec, total=False):
    """The input of `flow_sender.py`: its source address, its sinks, and drawn streams or a recorded schedule."""

    ip: Literal[4, 6]


class Stopped(BaseException):
    """A signal asked for the end."""


class Flow:
    """One flow from its start to its acknowledgement."""

    __slots__ = (
        "again", "connected", "last", "left", "number", "planned", "port", "queued", "sent", "sink", "size", "socket",
        "start",
    )  # fmt: skip

    def __init__(self, number: int, planned: int, size: int, sink: int, start: int) -> None:
        self.number = number
        self.planned = planned
        self.size = size
        self.sink = sink
        self.start = start
        self.connected = self.last = -1
        self.sent = 0
        self.left = max(size, HEADER.size)
        self.port = 0
        self.again = 0  # segments that its connection had retransmitted before it
        self.queued = False
        self.socket: socket.socket | None = None


class Worker:
    """Sends its share of the schedule."""

    def __init__(self, spec: SenderSpec, number: int, pipe: int) -> None:
        self.spec = spec
        self.family = socket.AF_INET6 if spec.get("ip", 4) == 6 else socket.AF_INET
        self.number = number
        self.pipe = pipe
        self.pending: collections.deque[tuple[int, int, int, int]] = collections.deque()
        self.half = b""
        self.ended = False  # no more flows will come
        self.flows: dict[int, Flow] = {}
        self.fresh: collections.deque[Flow] = collections.deque()  # nothing sent yet: they go first
        self.busy: collections.deque[Flow] = collections.deque()
        self.epoll = select.epoll()
        segment = spec["mtu"] - HEADERS[self.family]
        # Whole segments, so that no flow has more headers than its length makes it have.
        self.quantum = max(1, QUANTUM_BYTES // segment) * segment
        self.zeros = memoryview(bytes(self.quantum))
        self.zero_ns = 0
        self.records: list[bytes] = []
        self.flush_due = 0
        self.dialled = 0
        self.stopping = False
        self.drained_ns = 0
        # Connections of the pool, each with its port at the sink and what it had retransmitted before.
        self.idle: list[list[tuple[socket.socket, int, int]]] = [[] for _ in spec["sinks"]]
        self.look_ns = 0  # when to look for events again
        self.fd = os.open("flows.%d.bin" % number, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def stop(self, *_: Any) -> None:
        """Have the loop end; a flow is never left half logged."""
        self.stopping = True

    # The schedule

    def refill(self) -> None:
        """Take flows that the parent has dealt, without waiting."""
        try:
            data = os.read(self.pipe, PIPE_BYTES)
        except BlockingIOError:
            return
        if not data:
            self.ended = True
            return
        data = self.half + data
        whole = len(data) // EVENT.size * EVENT.size
        self.half = data[whole:]
        self.pending.extend(EVENT.iter_unpack(data[:whole]))

    def run(self, zero_ns: int) -> None:
        """Send everything, and wait for open flows at the end."""
        self.zero_ns = zero_ns
        os.write(self.fd, HEAD.pack(MAGIC, time.time_ns() + zero_ns - time.monotonic_ns()))
        self.refill()
        time.sleep(max(0, zero_ns - READY_NS - time.monotonic_ns()) / 1e9)
        if not self.number:
            print("sending", flush=True)
        self.serve()
        for flow in list(self.flows.values()):
            self.end(flow, -1, UNFINISHED)
        self.flush()

    def serve(self) -> None:
        """Start due flows, send what can be sent, else sleep, until all is done or a signal comes."""
        clock = time.monotonic_ns
        pending, fresh, busy = self.pending, self.fresh, self.busy
        while not self.stopping:
            now = clock() - self.zero_ns
            if pending and pending[0][1] <= now:
                now = self.start_due(now)
            if len(pending) < LOW_WATER and not self.ended:
                self.refill()
            if fresh or busy:
                if now >= self.look_ns:
                    self.look(0)
                queue = fresh or busy
                if queue:
                    self.push(queue.popleft())
            elif pending:
                self.wait(pending[0][1] - now)
            elif not self.ended:
                self.wait(1_000_000)
            elif self.flows and not self.drained(now):
                self.wait(10_000_000)
            else:
                return

    def start_due(self, now: int) -> int:
        """Start flows that are due, or, while too many wait to be sent, only shed late ones.

        Return the time afterwards.
        """
        pending = self.pending
        for _ in range(LAUNCHES_A_TURN):
            if len(self.fresh) + len(self.busy) < MOST_READY:
                self.launch(pending.popleft(), now)
            elif now - pending[0][1] > LATEST_NS:
                self.shed(pending.popleft(), now, STARVED)
            else:
                break
            now = time.monotonic_ns() - self.zero_ns
            if not pending or pending[0][1] > now:
                break
        return now

    def drained(self, now: int) -> bool:
        """Return whether flows still open after the last one have had their time."""
        self.drained_ns = self.drained_ns or now + int(self.spec["drain_s"] * 1e9)
        return now >= self.drained_ns

    def wait(self, left_ns: int) -> None:
        """Sleep until an event, or until shortly before something is due; then only look."""
        if left_ns <= SPIN_NS:
            self.look(0)
            return
        if self.records and time.monotonic_ns() >= self.flush_due:
            self.flush()
            return
        left_ns = min(left_ns - SPIN_NS, NAP_NS)
        # The timeout of epoll itself is rounded up to whole milliseconds.
        if left_ns >= 2_000_000:
            self.look(left_ns // 1_000_000 - 1)
        elif select.select([self.epoll], [], [], left_ns / 1e9)[0]:
            self.look(0)

    def look(self, wait_ms: int) -> None:
        """Handle events, waiting for the first if need be; each is dated to when it was found, not to its turn."""
        events = self.epoll.poll(wait_ms / 1e3, 64)
        now = time.monotonic_ns() - self.zero_ns
        self.look_ns = now + LOOK_NS
        self.handle(events, now)

    # Flows

    def launch(self, event: tuple[int, int, int, int], now: int) -> None:
        number, planned, size, sink = event
        if len(self.flows) >= self.spec["most_open"]:
            self.shed(event, now, SHED)
            return
        flow = Flow(number, planned, size, sink, now)
        if self.idle[sink]:
            flow.socket, flow.port, flow.again = self.idle[sink].pop()
            flow.connected = now
            self.flows[flow.socket.fileno()] = flow
            flow.queued = True
            self.fresh.append(flow)
            return
        target = self.spec["sinks"][sink]
        flow.port = target["ports"][self.dialled % len(target["ports"])]
        self.dialled += 1
        try:
            flow.socket = connection = self.open(flow.left)
            self.flows[connection.fileno()] = flow
            flow.start = time.monotonic_ns() - self.zero_ns
            code = connection.connect_ex((target["address"], flow.port))
            if code not in (0, errno.EINPROGRESS):
                self.end(flow, -1, code)
                return
            self.epoll.register(connection.fileno(), IN | OUT | EDGE)
        except OSError as error:
            self.end(flow, -1, error.errno or errno.EIO)

    def open(self, size: int) -> socket.socket:
        spec = self.spec
        connection = socket.socket(self.family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        setopt = connection.setsockopt
        setopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if size > LOWAT_BYTES or spec["pool"]:
            setopt(socket.IPPROTO_TCP, TCP_NOTSENT_LOWAT, LOWAT_BYTES)
        if spec["dscp"]:
            if self.family == socket.AF_INET6:
                setopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, spec["dscp"] << 2)
            else:
                setopt(socket.IPPROTO_IP, socket.IP_TOS, spec["dscp"] << 2)
        if spec["congestion"]:
            setopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, spec["congestion"].encode())
        if spec["source"]:
            setopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
            connection.bind((spec["source"], 0))
        return connection

    def handle(self, events: list[tuple[int, int]], now: int) -> None:
        flows = self.flows
        for fd, mask in events:
            flow = flows.get(fd)
            if flow is None:  # an idle connection of the pool
                continue
            if mask & BAD:
                code = flow.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) if flow.socket else 0
                self.end(flow, -1, code or CLOSED)
                continue
            if mask & OUT and flow.left and not flow.queued:
                flow.queued = True
                if flow.connected < 0:
                    flow.connected = now
                    self.fresh.append(flow)
                else:
                    self.busy.append(flow)
            if mask & IN:
                self.acknowledged(flow, now)

    def push(self, flow: Flow) -> None:
        """Send one quantum of a flow, which goes to the end of the queue if there is more."""
        connection = flow.socket
        if connection is None:
            return
        flow.queued = False
        size = min(flow.left, self.quantum)
        more = socket.MSG_MORE if flow.left > size else 0
        try:
            if flow.sent:
                count = connection.send(self.zeros[:size], more)
            else:
                head = HEADER.pack(flow.number, flow.left)
                count = connection.sendmsg((head, self.zeros[: size - HEADER.size]), (), more)
        except BlockingIOError:
            return
        except OSError as error:
            self.end(flow, -1, error.errno or errno.EIO)
            return
        flow.sent += count
        flow.left -= count
        if flow.left:
            flow.queued = True
            self.busy.append(flow)
        else:
            flow.last = time.monotonic_ns() - self.zero_ns

    def acknowledged(self, flow: Flow, now: int) -> None:
        if flow.socket is None:
            return
        try:
            data = flow.socket.recv(16)
        except BlockingIOError:
            return
        except OSError as error:
            self.end(flow, -1, error.errno or errno.EIO)
            return
        done = bool(data) and not flow.left
        self.end(flow, now if done else -1, 0 if done else CLOSED)

    def end(self, flow: Flow, at: int, code: int) -> None:
        """Log a flow that is over, and close its connection or keep it for another."""
        connection = flow.socket
        if connection is None:
            self.log(flow, at, code, 0)
            return
        flow.socket = None
        del self.flows[connection.fileno()]
        again, port = flow.again, 0
        try:
            again = RETRANSMITS.unpack(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, RETRANSMITS.size))[0]
            port = connection.getsockname()[1]
        except OSError:
            pass
        self.log(flow, at, code, again - flow.again, port)
        if self.spec["pool"] and not code:
            self.idle[flow.sink].append((connection, flow.port, again))
            return
        # A reset instead of a farewell: TIME_WAIT would use up the ports within seconds.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
        connection.close()

    # The log

    def log(self, flow: Flow, at: int, code: int, again: int, port: int = 0) -> None:
        self.record(
            flow.number,
            flow.planned,
            flow.start,
            flow.connected,
            flow.last,
            at,
            flow.size,
            flow.sent,
            flow.sink,
            port,
            flow.port,
            code,
            again,
        )

    def shed(self, event: tuple[int, int, int, int], now: int, code: int) -> None:
        """Log a flow that is not started."""
        number, planned, size, sink = event
        self.record(number, planned, now, -1, -1, -1, size, 0, sink, 0, 0, code, 0)

    def record(self, *fields: int) -> None:
        self.records.append(RECORD.pack(*fields))
        if len(self.records) >= FLUSH_RECORDS:
            self.flush()

    def flush(self) -> None:
        data = b"".join(self.records)
        self.records.clear()
        self.flush_due = time.monotonic_ns() + FLUSH_NS
        while data:
            data = data[os.write(self.fd, data) :]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def stop(*_: Any) -> None:
    raise Stopped


def die_with_parent() -> None:
    """Have the kernel end this process when its parent ends, however that is."""
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def fork_worker(spec: SenderSpec, number: int, others: list[int]) -> tuple[int, int]:
    """Fork a worker; return its process and the pipe of its start and flows; `others` are the other workers' pipes."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(reading)
        try:
            import fcntl

            fcntl.fcntl(writing, F_SETPIPE_SZ, PIPE_BYTES)
        except OSError:
            pass  # beyond what this user may have: the smaller one does
        return pid, writing
    code = 1
    try:
        for pipe in (writing, *others):
            os.close(pipe)
        die_with_parent()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent tells
        worker = Worker(spec, number, reading)
        signal.signal(signal.SIGTERM, worker.stop)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        begin(spec, worker, reading)
        code = 0
    except OSError as error:
        say("worker %d: %s" % (number, error))
    finally:
        os._exit(code)


def begin(spec: SenderSpec, worker: Worker, pipe: int) -> None:
    try:
        with open("/proc/self/timerslack_ns", "w") as slack:  # noqa: PTH123
            slack.write("1")
    except OSError:
        pass  # a sleep then ends up to 50 us later
    gc.disable()
    start = b""
    while not start and not worker.stopping:
        if select.select([pipe], [], [], NAP_NS / 1e9)[0]:
            start = os.read(pipe, 8)
            if not start:
                return
    if worker.stopping:
        return
    os.set_blocking(pipe, False)
    if spec["realtime"]:
        try:
            os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
        except OSError as error:
            say("no real-time priority: %s" % error.strerror)
    worker.run(struct.unpack("<q", start)[0])


def common_start(spec: SenderSpec) -> None:
    """Wait at a sink until all senders are there."""
    source = (spec["source"], 0) if spec["source"] else None
    with socket.create_connection((spec["start"]["address"], spec["start"]["port"]), BARRIER_S, source) as connection:
        try:
            connection.sendall(HEADER.pack(START, HEADER.size))
            answer = connection.recv(1)
        except ConnectionResetError:
            answer = b""
        if not answer:
            raise OSError(errno.ECONNREFUSED, "the sink takes no flows from this address")


def deal(events: Any, pipes: list[int]) -> None:
    """Write the schedule to the workers in turn; block while they have enough."""
    pack, share = EVENT.pack, len(pipes)
    waiting: list[list[bytes]] = [[] for _ in pipes]
    for number, (at, size, sink) in enumerate(events):
        mine = waiting[number % share]
        mine.append(pack(number, at, size, sink))
        if len(mine) >= 64 or number < 64:
            hand_over(pipes[number % share], mine)
    for pipe, mine in zip(pipes, waiting):
        hand_over(pipe, mine)


def hand_over(pipe: int, records: list[bytes]) -> None:
    data = b"".join(records)
    records.clear()
    while data:
        data = data[os.write(pipe, data) :]


def limits(spec: SenderSpec) -> None:
    """Open no more flows than files and ports allow."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:  # noqa: PTH123
        low, high = map(int, file.read().split())
    ports = (high - low) * min(len(sink["ports"]) for sink in spec["sinks"])
    share = min(spec["most_open"], ports * 9 // 10, (hard - 64) * spec["workers"]) // spec["workers"]
    if share * spec["workers"] < spec["most_open"] - spec["workers"]:
        say("at most %d flows can be open here: %d ports, %d files" % (share * spec["workers"], ports, hard))
    spec["most_open"] = max(1, share)


def main(argv: list[str]) -> int:
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - -I leaves it out
    schedule: Any = __import__("flow_drawing")
    with open(argv[1], encoding="utf-8") as file:  # noqa: PTH123
        spec: SenderSpec = json.load(file)
    limits(spec)
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    workers: list[tuple[int, int]] = []
    for number in range(spec["workers"]):
        workers.append(fork_worker(spec, number, [pipe for _, pipe in workers]))
    status = 0
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        status = send(spec, schedule, workers)
    except Stopped:  # also where the signal comes while the workers are ended for another reason
        status = given_up(workers)
    return status


def send(spec: SenderSpec, schedule: Any, workers: list[tuple[int, int]]) -> int:
    """Deal the schedule out to the workers, and return their worst status once they have sent it."""
    pipes = [pipe for _, pipe in workers]
    try:
        common_start(spec)
        zero = struct.pack("<q", time.monotonic_ns() + LEAD_NS)
        for pipe in pipes:
            os.write(pipe, zero)
        if spec["recorded"]:
            events = schedule.recorded(**spec["recorded"])
        else:
            events = schedule.merged([schedule.drawn(stream) for stream in spec["streams"]])
        os.nice(5)  # the workers come first
        deal(events, pipes)
        for pipe in pipes:
            os.close(pipe)
        return finished(workers)
    except BrokenPipeError:  # a worker may be told to end before this process is
        return stopped(workers)
    except OSError as error:
        say("cannot send: %s" % (error.strerror or error))
        stopped(workers)
        return 1


def finished(workers: list[tuple[int, int]]) -> int:
    """Wait for the workers' own end; return their worst status."""
    return max(1 if os.waitpid(pid, 0)[1] else 0 for pid, _ in workers)


def given_up(workers: list[tuple[int, int]]) -> int:
    """Return what `stopped` does, also where the signal that asks for it comes while it begins."""
    try:
        return stopped(workers)
    except Stopped:
        return stopped(workers)


def stopped(workers: list[tuple[int, int]]) -> int:
    """Have the workers log open flows, and end; return their worst status."""
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, signal.SIG_IGN)
    for pid, _ in workers:
        try:
            os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:
            continue
    status = 0
    for pid, _ in workers:
        try:
            status = max(status, 1 if os.waitpid(pid, 0)[1] else 0)
        except ChildProcessError:
            continue
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv))
