"""What rows work with: runs that are started, what they are made of, and what is expected of them."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from orchestrator import lock
from tests.faults import checks
from tests.faults.checks import DATA, LINE, PROCESSES, STATE, STATUS
from tests.faults.places import Hosts, Place, tree
from tests.testbed import orch_runs
from tests.testbed.orch_runs import ROOT, parent_of, processes, wait_for, write
from tests.testbed.rack import Rack, descendants

TAG = "ORCH_FAULT"  # in the environment of all that a row starts here
WINDOW_WITHIN_S = 300.0
BACK_WITHIN_S = 60.0  # for agents that have lost their controller to put things back
TRIES = 3


class Scene:
    """One row while it is carried out: where, with which seed, and what did not hold so far."""

    def __init__(self, folder: Path, place: Place, *, name: str, seed: int) -> None:
        self.folder = folder
        self.place = place
        self.random = random.Random(seed)  # noqa: S311 - when and where it breaks, no secret
        self.failures: dict[str, list[str]] = {}
        self._looked: set[str] = set()
        self._runs: list[str] = []
        self._name = f"{name}-{os.getpid()}"
        self._temporary = folder / "tmp"
        self._temporary.mkdir()
        self._state = place.state()
        self._running = place.processes()
        self._started: list[subprocess.Popen[str]] = []

    @property
    def rack(self) -> Rack:
        """The hosts, of a row on an inventory."""
        assert isinstance(self.place, Hosts)
        return self.place.rack

    @property
    def environment(self) -> dict[str, str]:
        """Of what the row starts: known by its tag, with a folder of its own for temporary files."""
        own = {TAG: self._name, "TMPDIR": str(self._temporary), "XDG_RUNTIME_DIR": str(self._temporary)}
        return {**os.environ, **own, lock.OTHER_TESTBED: f"of-{self._name}"}

    def held(self, check: str, wrong: str | None) -> None:
        """Note that a check was made, and what it found wrong, if anything."""
        self._looked.add(check)
        if wrong:
            self.failures.setdefault(check, []).append(wrong)

    # Arranging

    def path(self, name: str = "experiment.yaml", **changes: Any) -> Path:
        """An experiment of this place, in a file."""
        return write(self.folder, self.place.experiment(**changes), name)

    def start(self, *arguments: object, argv: Any = None, name: str = "orch", **more: Any) -> subprocess.Popen[str]:
        """`orch`, or another command line, in the background; what it says goes to NAME.out and NAME.err."""
        with (self.folder / f"{name}.out").open("w") as out, (self.folder / f"{name}.err").open("w") as err:
            shared = {"stdout": out, "stderr": err, "env": self.environment, **more}
            if argv is None:
                process = orch_runs.start(*map(str, arguments), **shared)
            else:
                process = subprocess.Popen(argv, **{"cwd": ROOT, "text": True, **shared})
        self._started.append(process)
        return process

    def run(self, path: Path | None = None, *options: object, name: str = "run", **more: Any) -> Controller:
        """`orch run` of the usual experiment, or another."""
        results = self.folder / f"{name}-results"
        usual = ("--results", results, "--no-report", *options)
        process = self.start("run", path or self.path(), *usual, name=name, **more)
        return Controller(self, process, results, name)

    def measuring(self, path: Path | None = None, *options: object, iterations: int = 4, **more: Any) -> Controller:
        """A run in its window, of which rank 0 has logged so many iterations.

        Another try when a busy machine lets the preflight refuse one.
        """
        for attempt in range(TRIES):
            run = self.run(path, *options, name=f"run{attempt}", **more)
            run.until("window", iterations=iterations, or_ended=attempt + 1 < TRIES)
            if run.process.poll() is None:
                return run
        raise AssertionError("never in its window")

    def command(self, *arguments: object, name: str, **more: Any) -> tuple[int, str]:
        """`orch` to its end: exit status, and all that it says."""
        process = self.start(*arguments, name=name, **more)
        status = process.wait(WINDOW_WITHIN_S)
        return status, said(self.folder, name)

    # The end

    def finish(self) -> None:
        """Hold what holds for every row, once its own part is over."""
        self.ours_are_gone()
        self.held(STATE, self._patiently(lambda: checks.state(self._state, self.place.state())))
        self.held(STATE, self._patiently(lambda: checks.state({"tmp": {"files": ""}}, {"tmp": self._files()})))
        for check in checks.CHECKS:
            if check not in self._looked:
                self.held(check, "nobody looked")

    @contextmanager
    def without_sshd(self, host: str) -> Iterator[None]:
        """A host that takes no new connection; its sshd listens again after the block."""
        with self.rack.refusing_logins(host):
            yield

    def ours_are_gone(self) -> None:
        self.held(PROCESSES, self._patiently(lambda: checks.processes(self._left())))

    def abandon(self) -> None:
        """End what the row has started, wherever it stopped."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
                process.wait()
        wait_for(lambda: not self._tagged(), 60, "the end of what a row started")

    def knows(self, run: str) -> None:
        """A run of this id is the row's, wherever its processes are."""
        self._runs.append(run)

    def _files(self) -> Mapping[str, str]:
        return {"files": "\n".join(tree(self._temporary))}

    def _left(self) -> list[str]:
        on_hosts = self.place.processes() - self._running
        return [f"{pid}: {command_line(pid)}" for pid in sorted({*self._tagged(), *on_hosts})]

    def _tagged(self) -> set[int]:
        found = set(processes(**{TAG: self._name}))
        for run in self._runs:
            sandboxes = processes(ORCH_LOCAL_TESTBED=run)
            found |= {*orch_runs.tagged(run), *sandboxes, *(pid for one in sandboxes for pid in descendants(one))}
        return {pid for pid in found if Path(f"/proc/{pid}").exists()}

    @staticmethod
    def _patiently(check: Callable[[], str | None]) -> str | None:
        ends = time.monotonic() + BACK_WITHIN_S
        while (wrong := check()) and time.monotonic() < ends:
            time.sleep(0.2)
        return wrong


class Controller:
    """An `orch run` that was started, and what has to come of it."""

    def __init__(self, scene: Scene, process: subprocess.Popen[str], results: Path, name: str) -> None:
        self.scene = scene
        self.process = process
        self.results = results
        self.name = name
        self._id = ""

    @property
    def id(self) -> str:
        """The run's id, as soon as there is one."""
        if not self._id:
            found = wait_for(self._folders, WINDOW_WITHIN_S, f"a run in {self.results}")
            self._id = found[0].name.removesuffix(".partial")
            self.scene.knows(self._id)
        return self._id

    def _folders(self) -> list[Path]:
        return [path.parent for path in self.results.glob("*/*/manifest.json")]

    def until(self, stage: str, *, iterations: int = 0, or_ended: bool = False) -> None:
        """Wait until it is in this stage, with so many iterations of rank 0 logged."""
        in_it = orch_runs.in_stage(self.results, stage)

        def there() -> bool:
            return in_it() and (not iterations or self.iterations() >= iterations)

        ready = orch_runs.ended_or(self.process, there)
        wait_for(ready, WINDOW_WITHIN_S, f"stage {stage} of {self.name}")
        if self.process.poll() is None or not or_ended:
            assert self.process.poll() is None, f"it ended before stage {stage}\n{self.said()}"
        if self._folders():
            assert self.id

    def iterations(self) -> int:
        """How many iterations rank 0 has logged."""
        logs = [*self.results.glob("*/*/hosts/*/**/training-rank0/iterations.jsonl")]
        if isinstance(self.scene.place, Hosts):
            rack = self.scene.rack
            logs = [
                log
                for host in rack.pids
                for log in (rack.files(host) / rack.work.lstrip("/")).glob("*/training-rank0/iterations.jsonl")
            ]
        return max((len(log.read_bytes().splitlines()) for log in logs), default=0)

    def told(self, **event: Any) -> Callable[[], bool]:
        """Whether it has told in its log of an event with these values."""
        return orch_runs.told_of(self.results, **event)

    def launched(self, name: str) -> int:
        """The process that an agent started; a rank's own command is below it."""
        return processes(ORCH_RUN=self.id, ORCH_LAUNCH=name)[0]

    def launch(self, name: str) -> int:
        """The last process of a launch: a rank's own command."""
        return processes(ORCH_RUN=self.id, ORCH_LAUNCH=name)[-1]

    def agent(self, launch: str) -> int:
        """The agent that holds a launch."""
        return parent_of(self.launched(launch))

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def said(self) -> str:
        return said(self.scene.folder, self.name)

    # What has to come of it

    def must_end(self, *wanted: int, told: str, within_s: float) -> None:
        """It has to end by itself within seconds from now, with one of these statuses, and say so in one line."""
        began = time.monotonic()
        try:
            found: int | None = self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            found = None
            self._kill()
        seconds = time.monotonic() - began
        self.scene.held(STATUS, checks.status(found, wanted, seconds=seconds, within_s=within_s))
        self.scene.held(LINE, checks.line(self.said(), told))

    def _kill(self) -> None:
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def must_be_home(self, outcome: str, *, iterations: int = 0) -> None:
        """Its data has to be sealed with this outcome."""
        assert self.id
        self.scene.held(DATA, checks.data(self.results, outcome, iterations=iterations))

    def must_be_recoverable(self, *options: object, iterations: int = 0) -> None:
        """`orch recover` has to bring its data home, and to say so."""
        assert self.id
        status, told = self.scene.command("recover", "--results", self.results, *options, name="recover")
        self.scene.held(STATUS, checks.status(status, {0}, seconds=0, within_s=WINDOW_WITHIN_S))
        self.scene.held(LINE, checks.line(told, "sealed as lost", begins=self.id))
        self.scene.held(DATA, checks.data(self.results, "lost", iterations=iterations))

    def must_have_left_nothing(self) -> None:
        """It has to have been refused before there was anything to keep."""
        self.scene.held(DATA, checks.nothing_kept(self.results))

    def manifest(self) -> dict[str, Any]:
        (folder,) = self._folders()
        found: dict[str, Any] = json.loads((folder / "manifest.json").read_bytes())
        return found


def said(folder: Path, name: str) -> str:
    """All that a command has said."""
    return "".join((folder / f"{name}.{end}").read_text() for end in ("out", "err"))


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return "gone"


def kill(pids: Collection[int], number: int = signal.SIGKILL) -> None:
    for pid in pids:
        os.kill(pid, number)
