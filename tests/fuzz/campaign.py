"""Many inputs of one target, in processes that are watched; what is found is kept, made small, and never lost."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.fuzz.shrink import shrunk
from tests.fuzz.target import Target, drawn
from tests.fuzz.trial import FORK, STUCK_S, Outcome, confine, ended, tried, tried_apart

BATCH = 2000  # inputs of one process: what each leaves behind in memory goes with it
SAVED_S = 20.0


@dataclass(slots=True)
class State:
    """How far a campaign is, as its file says it."""

    inputs: int = 0
    wall_s: float = 0.0
    slowest_s: float = 0.0
    largest_mib: float = 0.0
    findings: dict[str, Any] = field(default_factory=dict)


class Campaign:
    """The inputs of one seed for one target; its folder holds how far it is, and an input for each finding."""

    def __init__(self, target: Target, seed: int, folder: Path) -> None:
        self.target = target
        self.seed = seed
        self.folder = folder / f"{target.name}.{seed}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self._file = self.folder / "state.json"
        self.state = State(**json.loads(self._file.read_bytes())) if self._file.exists() else State()

    def carry_out(self, inputs: int, tell: Callable[[str], None]) -> None:
        """Go on until so many were tried in all."""
        self.target.warm()
        saved = 0.0
        while self.state.inputs < inputs:
            began = time.monotonic()
            self._batch(min(self.state.inputs + BATCH, inputs), tell)
            self.state.wall_s += time.monotonic() - began
            self._save()
            if time.monotonic() - saved > SAVED_S:
                saved = time.monotonic()
                tell(self.told())

    def told(self) -> str:
        """How far it is, in a line."""
        state = self.state
        return (
            f"{self.target.name:<12} {state.inputs:>8,} inputs {state.wall_s:>7.0f} s  slowest {state.slowest_s:.2f} s"
            f"  largest {state.largest_mib:.0f} MiB  {len(state.findings)} findings"
        )

    def _batch(self, end: int, tell: Callable[[str], None]) -> None:
        """A process that takes inputs up to this one, or up to the first that is its end."""
        near, far = FORK.Pipe(duplex=False)
        process = FORK.Process(target=_work, args=(self.target, self.seed, self.state.inputs, end, far), daemon=True)
        process.start()
        far.close()
        while True:
            if not near.poll(STUCK_S):
                process.kill()
            try:
                place, outcome = near.recv()
            except EOFError:
                process.join()
                break
            self.state.inputs = place
            self.state.slowest_s = max(self.state.slowest_s, outcome.seconds)
            self.state.largest_mib = max(self.state.largest_mib, outcome.mib)
            if outcome.wrong:
                self._found(place - 1, outcome, tell)
        if self.state.inputs < end:
            self._found(self.state.inputs, Outcome(ended(process.exitcode or 0, self.target)), tell)
            self.state.inputs += 1

    def _found(self, place: int, outcome: Outcome, tell: Callable[[str], None]) -> None:
        known = self.state.findings.get(outcome.wrong)
        if known is not None:
            known["count"] += 1
            return
        data = drawn(self.target, self.seed, place)
        small = shrunk(data, lambda less: tried_apart(self.target, less).wrong == outcome.wrong)
        name = re.sub(r"\W+", "-", outcome.wrong)[:60] + "-" + hashlib.sha256(small).hexdigest()[:8]
        (self.folder / f"{name}.input").write_bytes(small)
        told = f"{self.target.name} seed {self.seed} place {place}\n{outcome.told}"
        (self.folder / f"{name}.txt").write_text(told, errors="backslashreplace")
        self.state.findings[outcome.wrong] = {"count": 1, "place": place, "input": f"{name}.input"}
        tell(f"{self.target.name}: {outcome.wrong}: {self.folder / name}.input ({len(small)} bytes)")

    def _save(self) -> None:
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps(asdict(self.state), indent=1))
        new.replace(self._file)


def _work(target: Target, seed: int, first: int, end: int, far: Connection) -> None:
    confine()
    with TemporaryDirectory(prefix="orch-fuzz-") as folder:
        for place in range(first, end):
            far.send((place + 1, tried(target, drawn(target, seed, place), Path(folder))))
