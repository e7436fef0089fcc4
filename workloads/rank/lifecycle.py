"""Run a rank from its start to its end: read its settings, meet the others, wait for the gate, iterate, end.

A rank prints `ready` once it can begin, waits for the line `go` on standard input, which may say when to begin and how
often, and writes a line an iteration to `iterations.jsonl` in its working folder. SIGTERM ends it at any moment; a
failure is one line on standard error.
"""

from __future__ import annotations

import argparse
import errno
import itertools
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, NoReturn, Protocol, Tuple, TypedDict, TypeVar

from .logs import IterationLog, Trace

SETTINGS_FILE = "config.json"
CONGESTION_CONTROL = "ORCH_CONGESTION_CONTROL"  # environment variable: the algorithm of the job's connections
SCRATCH = Path("scratch")  # of temporary files: a framework removes its own only at a usual exit

# A rank whose peer went away waits this long before it calls that a failure. When a run ends its ranks are asked to
# end one after the other, and a rank must not fail because another one was asked first; and when a peer failed, the
# peer's own reason is then the first one seen.
PEER_GRACE_S = 2.0

_ENDING = {signal.SIGTERM, signal.SIGINT}

LayerPlan = Tuple[float, float, List[int]]  # forward in seconds, backward in seconds, sizes of the parameter tensors


class JitterSettings(TypedDict):
    """Settings of the jitter of emulated compute: recorded factors of the compute time, and how they are drawn."""

    factors: List[float]
    stretch: float  # mean number of consecutive ones
    common: bool  # whether all ranks draw the same
    seed: int


class Jittered(TypedDict, total=False):
    """Settings of a rank whose emulated compute may have jitter."""

    jitter: JitterSettings


class TrainingSettings(Jittered):
    """Settings of a rank's emulated model, where its framework meets the other ranks by itself."""

    layers: List[LayerPlan]
    batch: int  # samples of an iteration
    seed: int
    threads: int  # that may compute


def load_settings() -> Any:
    """Read the settings file beside the program, with the type of the program's own TypedDict."""
    return json.loads(Path(SETTINGS_FILE).read_text())


def checksum_requested() -> bool:
    """Return whether the command line asks for the sum of all parameters after each iteration; refuse other options."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--checksum", action="store_true", help="log the sum of all parameters after each iteration")
    return bool(parser.parse_args().checksum)


def end_on_signal(flush: Callable[[], None]) -> None:
    """Have SIGTERM and SIGINT end the process at once with status 0, after `flush`.

    Call it before anything starts a thread: every later thread inherits the blocked signals, so that only the thread
    started here takes them. A handler of Python's own would have to wait until a collective in C++ returns.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)

    def wait() -> None:
        signal.sigwait(_ENDING)
        flush()
        os._exit(0)

    threading.Thread(target=wait, name="end-on-signal", daemon=True).start()


def fail(reason: str) -> NoReturn:
    """End the process with status 1 and one line on standard error."""
    print(f"rank {os.environ.get('RANK', '?')}: {reason}", file=sys.stderr, flush=True)
    os._exit(1)


def peer_lost(error: Exception) -> NoReturn:
    """Handle a failed collective: wait a moment for the signal to end, then fail."""
    threading.Event().wait(PEER_GRACE_S)
    fail(f"a collective failed: {first_line(error)}")


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, or its type where it has none."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def report_ready() -> None:
    """Print `ready`: this rank can start its first iteration."""
    print("ready", flush=True)


class Pace(NamedTuple):
    """When iterations may begin: the first at an instant of the monotonic clock, each other a period later.

    One whose turn has passed begins at once, and the turns of those after it stay where they are. In step, ranks of a
    job must not leave out a turn: each would decide that by itself.
    """

    begin_ns: int
    every_ns: int  # 0: each begins when the one before it has ended

    def wait(self, iteration: int) -> None:
        """Sleep until an iteration's turn has come."""
        if iteration and not self.every_ns:
            return
        due_ns = self.begin_ns + iteration * self.every_ns
        left_ns = due_ns - time.monotonic_ns()
        if left_ns > 0:
            time.sleep(left_ns * 1e-9)


def wait_for_go() -> Pace:
    """Block until the gate opens, and it is time to begin; fail when standard input ends first.

    It opens by the line "go", or by "go AT EVERY": the instant of this host's wall clock to begin at, and the period
    of iterations, both in nanoseconds.
    """
    for line in sys.stdin:
        word, *numbers = line.split() or [""]
        if word == "go":
            at_ns, every_ns = map(int, numbers or ("0", "0"))
            now_ns = time.monotonic_ns()
            pace = Pace(now_ns + at_ns - time.time_ns() if at_ns else now_ns, every_ns)
            pace.wait(0)
            return pace
    fail('standard input ended before "go" came')


def set_congestion_control(algorithm: str) -> int:
    """Have the connections of this process use an algorithm of TCP; return how many there are.

    A connection is set by its socket, so that jobs that share a host can differ. Fail where the kernel refuses.
    """
    count = 0
    for entry in list(Path("/proc/self/fd").iterdir()):
        try:
            copy = os.dup(int(entry.name))
        except OSError:  # it was that of the listing itself
            continue
        try:
            connection = socket.socket(fileno=copy)
        except OSError:  # it is no socket
            os.close(copy)
            continue
        with connection:
            if connection.type != socket.SOCK_STREAM or connection.family not in (socket.AF_INET, socket.AF_INET6):
                continue
            try:
                connection.getpeername()
            except OSError:  # it listens
                continue
            try:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, algorithm.encode())
            except OSError as error:
                reasons = {
                    errno.ENOENT: "this kernel has none of this name: `modprobe tcp_%s`" % algorithm,
                    errno.EPERM: "root alone may: net.ipv4.tcp_allowed_congestion_control says which others may use",
                }
                fail(f"congestion control {algorithm}: {reasons.get(error.errno or 0, error.strerror)}")
            count += 1
    return count


def own_scratch() -> Callable[[], None]:
    """Put Python's temporary files into SCRATCH.

    Return a function that removes them, for a process that is asked to end.
    """
    SCRATCH.mkdir(exist_ok=True)
    tempfile.tempdir = str(SCRATCH.resolve())
    return lambda: shutil.rmtree(SCRATCH, ignore_errors=True)


# Does one iteration; gives what its line has beside instants: forward_s, backward_s, wait_s, loss, samples, and more.
Step = Callable[[int], Dict[str, float]]


@dataclass(frozen=True)
class Evaluated:
    """A step, and work after it that does not count as its time, such as evaluation on held-out images."""

    step: Step
    afterwards: Callable[[int], None]

    def __call__(self, iteration: int) -> dict[str, float]:
        return self.step(iteration)


class Ended(Protocol):
    """A callback for each iteration that ended."""

    def __call__(self, iteration: int, *, start_ns: int, mono_start_ns: int) -> None:
        """Take its number, and its start by both clocks."""


def iterate(step: Step, log: IterationLog, *, ended: Ended | None = None) -> None:
    """Report ready, wait for the gate, and iterate without end, at the pace that the gate gives.

    Before, connections get the congestion control of the job, where it has one of its own.
    """
    algorithm = os.environ.get(CONGESTION_CONTROL)
    if algorithm and not set_congestion_control(algorithm):
        fail(f"congestion control {algorithm}: this rank has no connection yet that could use it")
    report_ready()
    pace = wait_for_go()
    for iteration in itertools.count():
        pace.wait(iteration)
        start_ns, mono_start_ns = time.time_ns(), time.monotonic_ns()
        fields = step(iteration)
        mono_end_ns, end_ns = time.monotonic_ns(), time.time_ns()
        if isinstance(step, Evaluated):
            step.afterwards(iteration)
        log.write(
            {
                "iteration": iteration,
                "start_ns": start_ns,
                "end_ns": end_ns,
                "mono_start_ns": mono_start_ns,
                "mono_end_ns": mono_end_ns,
                **fields,
            }
        )
        if ended is not None:
            ended(iteration, start_ns=start_ns, mono_start_ns=mono_start_ns)


def timed(begin_ns: int, forward_ns: int, backward_ns: int, *, wait_s: float) -> dict[str, float]:
    """Return an iteration's parts for its log line; the backward pass with its waiting ended at `backward_ns`."""
    return {
        "forward_s": round((forward_ns - begin_ns) * 1e-9, 9),
        "backward_s": round((backward_ns - forward_ns) * 1e-9 - wait_s, 9),
        "wait_s": round(wait_s, 9),
    }


Given_contra = TypeVar("Given_contra", contravariant=True)


class Build(Protocol[Given_contra]):
    """A function that builds the step of one iteration."""

    def __call__(self, config: Given_contra, *, checksum: bool) -> Step:
        """Build the step; `checksum` is whether it returns the sum of all parameters."""
        ...


def run_rank(build: Build[Given_contra], *, framework: str, trace: Trace | None = None) -> None:
    """Run a rank; `framework` is its name in messages. A RuntimeError of the framework counts as the loss of a peer.

    A `trace` that the steps add spans to is written down after each iteration.
    """
    checksum = checksum_requested()
    log = IterationLog(Path("iterations.jsonl"))
    tidy = own_scratch()

    def flush() -> None:
        log.close()
        if trace is not None:
            trace.close()
        tidy()

    end_on_signal(flush)
    config: Given_contra = load_settings()
    try:
        step = build(config, checksum=checksum)
    except (ImportError, RuntimeError, ValueError) as error:
        fail(f"{framework} did not start: {first_line(error)}")
    try:
        iterate(step, log, ended=None if trace is None else trace.close_iteration)
    except RuntimeError as error:
        peer_lost(error)
