"""Starts programs for benchmarks, `orch` above all, and ends them with us: Ctrl-C leaves nothing behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
WAITING = "  waiting: "  # as `orch run --wait` says it
INVALID = 3  # measured, but noisy: its numbers are still what this machine gave
ORCH_WITHIN_S = 900.0
SWEEP_WITHIN_S = 3600.0
END_WITHIN_S = 60.0


class CommandError(Exception):
    """A program did not do what was asked of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """How a program ended, and what it took."""

    stdout: str
    stderr: str
    seconds: float


def call(argv: Sequence[str], *, ok: Sequence[int] = (0,), within_s: float = 120.0, **more: Any) -> Done:
    """Run a program to its end; CommandError with its last words when its status is not among `ok`."""
    # A session of its own: a Ctrl-C at the terminal is passed on once, since a second one would cut its clean-up short.
    process = subprocess.Popen(
        list(argv), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, **more
    )
    began = time.perf_counter()
    try:
        out, err = process.communicate(timeout=within_s)
    except BaseException:
        _end(process)
        raise
    seconds = time.perf_counter() - began
    if process.returncode not in ok:
        tail = "\n".join((out + err).splitlines()[-15:])
        raise CommandError(f"{' '.join(argv)}: status {process.returncode}\n{tail}")
    return Done(stdout=out, stderr=err, seconds=seconds)


def _end(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=END_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()


def orch_argv(*arguments: str) -> list[str]:
    """The installed `orch`, as users start it, of the environment that this runs in."""
    return [str(Path(sys.executable).with_name("orch")), *arguments]


@dataclass(frozen=True, slots=True, kw_only=True)
class OrchRun:
    """One sealed run: what `orch run --json` printed, its manifest, and what the command took.

    `around_s` is what of the command's time lies outside the run; None when it waited for somebody else's testbed.
    """

    path: Path
    summary: Mapping[str, Any]
    manifest: Mapping[str, Any]
    around_s: float | None
    peak_bytes: int
    children_peak_bytes: int


def orch_run(experiment: Mapping[str, Any], scratch: Path, *, report: bool = False) -> OrchRun:
    """Carry out an experiment of one run in a store below `scratch`, waiting for a testbed that somebody else holds."""
    results = scratch / "results"
    file = scratch / f"{experiment['name']}.yaml"
    file.write_text(yaml.safe_dump(dict(experiment), sort_keys=False))
    options = ["--wait", "10min", "--json", "--results", str(results), *([] if report else ["--no-report"])]
    done, peaks = watched(["run", str(file), *options], scratch)
    (summary,) = json.loads(done.stdout.splitlines()[-1])["runs"]
    path = Path(summary["path"])
    manifest = json.loads((path / "manifest.json").read_bytes())
    if manifest["outcome"] != "completed":
        raise CommandError(f"{experiment['name']}: {manifest['outcome']}: {manifest['error']}")
    around_s = None if WAITING in done.stderr else done.seconds - manifest["phases"]["total"]
    return OrchRun(path=path, summary=summary, manifest=manifest, around_s=around_s, **peaks)


def orch_sweep(sweep: Mapping[str, Any], results: Path) -> Mapping[str, Any]:
    """Measure what is missing of a sweep, with its file in the results folder; return what `orch sweep --json` printed.

    Waits for a testbed that somebody else holds.
    """
    results.mkdir(parents=True, exist_ok=True)
    file = results / f"{sweep['name']}.yaml"
    file.write_text(yaml.safe_dump(dict(sweep), sort_keys=False))
    argv = orch_argv("sweep", str(file), "--results", str(results), "--wait", "30min", "--json")
    done = call(argv, ok=(0, INVALID), within_s=SWEEP_WITHIN_S, cwd=ROOT)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def watched(arguments: Sequence[str], scratch: Path) -> tuple[Done, dict[str, int]]:
    """An `orch` command, with the most memory that its own process held and the largest of its children."""
    peaks = scratch / "peaks.json"
    argv = [sys.executable, str(Path(__file__).with_name("watched.py")), str(peaks), *arguments]
    done = call(argv, ok=(0, INVALID), within_s=ORCH_WITHIN_S, cwd=ROOT)
    return done, json.loads(peaks.read_bytes())


def only_job(run: OrchRun, window: int = 0) -> Mapping[str, Any]:
    """The summary of the only training in a window."""
    (job,) = run.summary["windows"][window]["jobs"]
    return dict(job)


def training(hosts: int, **changes: Any) -> dict[str, Any]:
    """The quickstart's training on as many hosts as asked, without traffic; None removes a key."""
    data = {
        "name": "bench",
        "testbed": {"local": {"hosts": hosts, "link": "25gbit", "scale": 100}},
        "conditions": [{"congestion-control": "cubic"}],
        "workload": {"ddp": {"model": "resnet50", "batch": 64, "compute": "emulated"}},
        "collect": ["tcpdump", "nic", "qdisc", "tcp", "cpu"],
        "measure": {"warmup": 5, "iterations": 100, "at_most": "120s"},
        **changes,
    }
    return {key: value for key, value in data.items() if value is not None}


def slow_testbed(hosts: int) -> dict[str, Any]:
    """A testbed that sends what scale 100 sends, four times slower: two cores keep up with it at every load."""
    return {"local": {"hosts": hosts, "link": "25gbit", "scale": 400, "dilation": 4}}
