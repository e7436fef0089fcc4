"""One input: what a target does with it, and what that costs."""

from __future__ import annotations

import faulthandler
import multiprocessing
import re
import resource
import signal
import time
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.fuzz.target import Target

FORK = multiprocessing.get_context("fork")  # what is imported and compiled is shared
ROOT = str(Path(__file__).parents[2])
ADDRESS_SPACE = 4 << 30  # that a worker may add to what it has
STUCK_S = 180.0  # without an end, waiting and not computing


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of an input: `wrong` names what is wrong with it, and is the same for the same mistake."""

    wrong: str = ""
    told: str = ""
    seconds: float = 0.0
    mib: float = 0.0


def tried(target: Target, data: bytes, folder: Path) -> Outcome:
    """Read an input here; this process is killed by SIGPROF where it takes too much of the processor."""
    before = _peak_mib(reset=True)
    began = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, target.seconds)
    wrong = told = ""
    try:
        target.read(data, folder)
    except target.ours:
        pass
    except Exception as error:  # noqa: BLE001 - which one it is, is what is asked
        wrong, told = _name(error), traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    grown = _peak_mib() - before
    if not wrong and grown > target.mib:
        wrong = f"memory: more than {target.mib} MiB"
    return Outcome(wrong, told, time.process_time() - began, grown)


def tried_apart(target: Target, data: bytes) -> Outcome:
    """The same in a process of its own, whose end is an outcome too."""
    near, far = FORK.Pipe(duplex=False)
    process = FORK.Process(target=_answer, args=(target, data, far), daemon=True)
    process.start()
    far.close()
    if not near.poll(STUCK_S):
        process.kill()
    try:
        outcome: Outcome = near.recv()
    except EOFError:
        process.join()
        return Outcome(ended(process.exitcode or 0, target))
    process.join()
    return outcome


def ended(status: int, target: Target) -> str:
    """What the end of a process in the middle of an input says of it."""
    if status == -signal.SIGPROF:
        return f"time: more than {target.seconds:g} s"
    if status == -signal.SIGKILL:
        return f"hang: more than {STUCK_S:g} s"
    return f"crash: {signal.Signals(-status).name}" if status < 0 else f"exit: {status}"


def confine() -> None:
    """Bound what this process may have: an input that asks for more gets a MemoryError."""
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + ADDRESS_SPACE, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.disable()  # how it ends is told by its signal


def _answer(target: Target, data: bytes, far: Connection) -> None:
    confine()
    with TemporaryDirectory(prefix="orch-fuzz-") as folder:
        far.send(tried(target, data, Path(folder)))


def _name(error: Exception) -> str:
    """The type of an error and the innermost function of this project that it passed."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(ROOT)]
    ours = [frame for frame in frames if "site-packages" not in frame.filename] or frames
    place = f"{Path(ours[-1].filename).relative_to(ROOT)}:{ours[-1].name}" if ours else "?"
    return f"{'memory' if isinstance(error, MemoryError) else type(error).__name__} in {place}"


def _peak_mib(*, reset: bool = False) -> float:
    if reset:
        Path("/proc/self/clear_refs").write_bytes(b"5")
    status = Path("/proc/self/status").read_bytes()
    return int(re.findall(rb"VmHWM:\s*(\d+)", status)[0]) / 1024
