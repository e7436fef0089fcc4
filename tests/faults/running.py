"""An `orch run` under way: what it is made of, and what has to come of it."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.faults import checks
from tests.faults.checks import DATA, LINE, STATUS
from tests.helpers import orch_runs
from tests.helpers.orch_runs import parent_of, processes, wait_for

if TYPE_CHECKING:
    from tests.faults.scene import Scene

WINDOW_WITHIN_S = 300.0
ENDS_WITHIN_S = 60.0  # after Ctrl-C, before it is killed
VERDICT = r"#\d+ \d{8}T"  # how the line begins that ends a run


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
        logs = self.scene.place.logs(self.results)
        return max((len(log.read_bytes().splitlines()) for log in logs), default=0)

    def until_told(self, **event: Any) -> None:
        """Wait until it has told in its log of an event with these values."""
        told = orch_runs.told_of(self.results, **event)
        wait_for(orch_runs.ended_or(self.process, told), WINDOW_WITHIN_S, str(event))
        assert self.id

    def launched(self, name: str) -> int:
        """The process that an agent started; a rank's own command is below it."""
        return processes(ORCH_RUN=self.id, ORCH_LAUNCH=name)[0]

    def launch(self, name: str) -> int:
        """The last process of a launch: a rank's own command."""
        return processes(ORCH_RUN=self.id, ORCH_LAUNCH=name)[-1]

    def agent(self, launch: str) -> int:
        """The agent that holds a launch."""
        return parent_of(self.launched(launch))

    def processes_on(self, host: str) -> set[int]:
        """What the run has started on a host, as far as it still runs."""
        return self.scene.rack.below(host) & set(orch_runs.tagged(self.id))

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def said(self) -> str:
        return self.scene.said(self.name)

    # What has to come of it

    def must_end(self, *wanted: int, told: str, within_s: float, begins: str = "orch: ") -> None:
        """It has to end by itself within seconds from now, with one of these statuses, and say so in one line."""
        self.must_end_untold(*wanted, within_s=within_s)
        self.scene.held(LINE, checks.line(self.said(), told, begins=begins))

    def must_end_untold(self, *wanted: int, within_s: float) -> None:
        """The same of one that nobody hears."""
        began = time.monotonic()
        try:
            found: int | None = self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            found = None
            self._kill()
        seconds = time.monotonic() - began
        self.scene.held(STATUS, checks.status(found, wanted, seconds=seconds, within_s=within_s))

    def must_be_completed(self, *, within_s: float, iterations: int = 20) -> None:
        """Nothing may come of it: the run is measured as if nothing had been, on a busy machine perhaps not validly."""
        self.must_end(0, 3, told="valid$|INVALID$", within_s=within_s, begins=VERDICT)
        self.must_be_home("completed", iterations=iterations)

    def _kill(self) -> None:
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(ENDS_WITHIN_S)
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
        named = ("--testbed", self.scene.path("testbed.yaml"))
        status, told = self.scene.command("recover", "--results", self.results, *named, *options, name="recover")
        self.scene.held(STATUS, checks.status(status, {0}, seconds=0, within_s=WINDOW_WITHIN_S))
        self.scene.held(LINE, checks.line(told, "sealed as lost", begins=self.id))
        self.scene.held(DATA, checks.data(self.results, "lost", iterations=iterations))

    def must_be_completed_later(self, outcome: str, *, iterations: int) -> None:
        """It is sealed without some of its files, and `orch recover RUN` has to fetch these."""
        self.must_be_home(outcome)
        assert self.manifest()["given_up"]
        status, told = self.scene.command("recover", "--results", self.results, self.id, name="recover")
        self.scene.held(STATUS, checks.status(status, {0}, seconds=0, within_s=WINDOW_WITHIN_S))
        self.scene.held(LINE, checks.line(told, "is home", begins=self.id))
        self.must_be_home(outcome, iterations=iterations)

    def must_be_safe(self, outcome: str, *options: object, iterations: int = 0) -> None:
        """Its data has to be sealed with this outcome, or be recoverable."""
        if any(folder.name.endswith(".partial") for folder in self._folders()):
            self.must_be_recoverable(*options, iterations=iterations)
        else:
            self.must_be_home(outcome, iterations=iterations)

    def must_have_left_nothing(self) -> None:
        """It has to have been refused before there was anything to keep."""
        self.scene.held(DATA, checks.nothing_kept(self.results))

    def folder(self) -> Path:
        """Where its results are."""
        (found,) = self._folders()
        return found

    def manifest(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder() / "manifest.json").read_bytes())
        return found
