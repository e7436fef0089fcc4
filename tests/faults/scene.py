"""What rows work with: runs that are started, what they are made of, and what is expected of them."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from orchestrator.core import lock
from tests.faults import checks
from tests.faults.checks import LINE, PROCESSES, STATE, STATUS
from tests.faults.places import Hosts, Place, Users, tree
from tests.faults.running import WINDOW_WITHIN_S, Controller
from tests.helpers import orch_runs
from tests.helpers.orch_runs import ROOT, processes, wait_for, write
from tests.helpers.rack import Rack, descendants
from tests.helpers.terminals import Terminal, on_a_terminal

TAG = "ORCH_FAULT"  # in the environment of all that a row starts here
PIDS = Path("/sys/fs/cgroup/pids")
BACK_WITHIN_S = 60.0  # for agents that have lost their controller to put things back
TRIES = 3
IN_WINDOW = (4, 24)  # iterations of rank 0, of 45 ms


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
        self.running = place.processes()  # on its hosts, beforehand
        self._started: list[subprocess.Popen[str]] = []

    @property
    def rack(self) -> Rack:
        """The hosts, of a row on an inventory."""
        assert isinstance(self.place, Hosts)
        return self.place.rack

    @property
    def users(self) -> Users:
        """The hosts, of a row with sudo."""
        assert isinstance(self.place, Users)
        return self.place

    @property
    def environment(self) -> dict[str, str]:
        """Of what the row starts: known by its tag, with a folder of its own for temporary files."""
        own = {TAG: self._name, "TMPDIR": str(self._temporary)}
        return {**os.environ, **own, lock.OTHER_TESTBED: f"of-{self._name}"}

    def held(self, check: str, wrong: str | None) -> None:
        """Note that a check was made, and what it found wrong, if anything."""
        self._looked.add(check)
        if wrong:
            self.failures.setdefault(check, []).append(wrong)

    # Arranging

    def path(self, name: str = "experiment.yaml", **changes: Any) -> Path:
        """An experiment of this place, in a file."""
        return self.write(self.place.experiment(**changes), name)

    def write(self, data: dict[str, Any], name: str = "experiment.yaml") -> Path:
        return write(self.folder, data, name)

    def inventory(self) -> Path:
        """The hosts' own file, for commands that want one."""
        return write(self.folder, self.rack.inventory(), "inventory.yaml")

    def program(self, name: str, text: str) -> Path:
        """A file that can be executed."""
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)
        return path

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

    def measuring(self, path: Path | None = None, *options: object, **more: Any) -> Controller:
        """A run in its window, at a moment that the seed decides.

        Another try when a busy machine lets the preflight refuse one.
        """
        iterations = self.random.randint(*IN_WINDOW)
        for attempt in range(TRIES):
            run = self.run(path, *options, name=f"run{attempt}", **more)
            run.until("window", iterations=iterations, or_ended=True)
            if run.process.poll() is None:
                return run
            assert run.manifest()["stage"] == "preflight", run.said()
        raise AssertionError(f"refused {TRIES} times\n{run.said()}")

    def command(self, *arguments: object, name: str, **more: Any) -> tuple[int, str]:
        """`orch` to its end: exit status, and all that it says."""
        status = self.start(*arguments, name=name, **more).wait(WINDOW_WITHIN_S)
        return status, self.said(name)

    def said(self, name: str) -> str:
        """All that a command has said."""
        return "".join((self.folder / f"{name}.{end}").read_text() for end in ("out", "err"))

    @contextmanager
    def on_a_terminal(self) -> Iterator[tuple[Controller, Terminal]]:
        """The usual run on a terminal of its own, and the other end of that."""
        results, log = self.folder / "run-results", self.folder / "run.out"
        (self.folder / "run.err").touch()
        argv = orch_runs.command("run", self.path(), "--results", results, "--no-report")
        with on_a_terminal(argv, log, cwd=ROOT, env=self.environment) as (process, terminal):
            yield Controller(self, process, results, "run"), terminal

    def clean(self, *options: str) -> None:
        """Have `orch clean` put down what is left on the hosts."""
        status, told = self.command("clean", self.inventory(), *options, name="clean")
        self.held(STATUS, checks.status(status, {0}, seconds=0, within_s=WINDOW_WITHIN_S))
        self.held(LINE, checks.line(told, "", begins="h1: ") if status else None)

    # Waiting

    @staticmethod
    def rest(seconds: float) -> None:
        """Let time pass: the fault is one that lasts."""
        time.sleep(seconds)

    # The end

    def finish(self) -> None:
        """Hold what holds for every row, once its own part is over."""
        self.ours_are_gone()
        self.held(STATE, self._patiently(lambda: checks.state(self._state, self.place.state())))
        self.held(STATE, self._patiently(lambda: checks.state({"tmp": {"files": ""}}, {"tmp": self._files()})))
        for check in checks.CHECKS:
            if check not in self._looked:
                self.held(check, "nobody looked")

    def ours_are_gone(self) -> None:
        self.held(PROCESSES, self._patiently(lambda: checks.processes(self._left())))

    def abandon(self) -> None:
        """End what the row has started, wherever it stopped, and what it has found to be left."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
                process.wait()
        for pid in self._tagged():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not self._tagged(), 60, "the end of what a row started")

    def knows(self, run: str) -> None:
        """A run of this id is the row's, wherever its processes are."""
        self._runs.append(run)

    def _files(self) -> Mapping[str, str]:
        return {"files": "\n".join(tree(self._temporary))}

    def _left(self) -> list[str]:
        on_hosts = self.place.processes() - self.running
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


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
    except OSError:
        return "gone"
