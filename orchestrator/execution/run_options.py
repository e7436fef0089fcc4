"""Options of runs: what the caller of a command, or of the Python API, asks of all runs that it has carried out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from orchestrator.core.errors import ConfigError
from orchestrator.core.fields import Duration
from orchestrator.execution.observers.observing import Observer
from orchestrator.execution.observers.progress import Progress
from orchestrator.store.manifests.summaries import OfSweep


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How runs are carried out; made once where the caller is, and handed down whole."""

    results: Path  # folder of the store
    wait_s: float = 0.0  # for how long a testbed that somebody else holds is waited for
    salt: str | None = None  # of the runs' random numbers; None: one is drawn
    force: bool = False  # whether machines that are too small are taken all the same
    progress: Progress = field(default_factory=Progress)
    observer: Observer | None = None  # is told how each run goes
    after_run: Callable[[Path, Progress], None] | None = None  # is called with `results` when a run has been stored


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An attempt at one run: what people see it called, and what its manifest says of it beside its plan."""

    label: str
    sweep: OfSweep | None = None  # that it is of
    forced: Sequence[str] = ()  # what speaks against its hosts, where it is carried out on them all the same


def wait_seconds(text: str | None) -> float:
    """Return the seconds that `--wait` asks for, none when it is left out; ConfigError for what is no time."""
    if text is None:
        return 0.0
    try:
        return float(TypeAdapter(Duration).validate_python(text))
    except ValidationError as error:
        raise ConfigError(f"--wait {text}: {error.errors()[0]['ctx']['error']}") from None
