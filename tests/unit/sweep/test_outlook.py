"""How far a sweep or a study is as a whole, and when it ends: on a terminal, in a log, and when it is resumed."""

from __future__ import annotations

import io
import re
from dataclasses import asdict
from datetime import datetime, timedelta, timezone

import pytest
from test_sweep import Testbed, all_valid, ended

from orchestrator.core.errors import Interrupted
from orchestrator.execution import execute
from orchestrator.execution.observers.progress import Progress
from orchestrator.execution.run_options import RunOptions
from orchestrator.experiment import sweepfile
from orchestrator.sweep import run_sweep
from orchestrator.sweep.sweepplan import Estimate
from orchestrator.sweep.sweeptext import Outlook, clock_text
from tests.helpers.experiments import orch
from tests.helpers.sweep_files import leave, window, write

NOON = datetime(2026, 11, 22, 12, 0, tzinfo=timezone.utc)


def estimate(seconds, *, bound=False):
    return Estimate(seconds=seconds, bound=bound, known=0, windows=1, runs=1)


def outlook(left, after=0.0, *, done=3, total=8, bound=False):
    return Outlook(
        name="s", done=done, total=total, left=estimate(left, bound=bound), after=estimate(after), since=NOON
    )


def test_the_end_is_a_time_of_day():
    assert outlook(2400).text() == "3 of 8 done, about 40 min left, until about 12:40"
    assert outlook(2400, bound=True).text() == "3 of 8 done, at most 40 min left, until 12:40 at the latest"
    assert outlook(None).text() == "3 of 8 done, an unknown time left"
    assert outlook(0, done=8).text() == "8 of 8 done"
    assert outlook(2400).brief(2, NOON) == "5/8, until about 12:40"
    assert outlook(None).brief(2, NOON) == "5/8"


def test_a_run_that_takes_longer_puts_the_end_off():
    found = outlook(600, 500)
    assert found.ends(NOON) == NOON + timedelta(seconds=600)
    assert found.ends(NOON + timedelta(seconds=60)) == NOON + timedelta(seconds=600)
    assert found.ends(NOON + timedelta(seconds=400)) == NOON + timedelta(seconds=900)


def test_another_day_is_named():
    assert clock_text(NOON + timedelta(hours=11), NOON) == "23:00"
    assert clock_text(NOON + timedelta(hours=13), NOON) == "Mon 01:00"
    assert clock_text(NOON + timedelta(days=7), NOON) == "2026-11-29 12:00"


def test_the_live_line_begins_with_the_whole():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    shown = Progress(stream)
    shown.part_of(lambda windows: f"{3 + windows}/8, until about 12:40")
    shown.run("a run")
    shown.phase("ranks")
    shown.window(2, 3, "w2")
    shown.phase("window")
    shown.iterations(1, 10, last_s=0.1, left_s=1.0, rate_bps=None)
    lines = re.split(r"[\r\n]+", stream.getvalue())
    assert any(line.startswith("  3/8, until about 12:40 | ranks ...") for line in lines)
    assert any(line.strip() == "window 2 of 3: w2 (4/8, until about 12:40)" for line in lines)
    assert lines[-1].startswith("  4/8, until about 12:40 | window: iteration 1/10")


def test_a_single_run_is_part_of_nothing():
    stream = io.StringIO()
    shown = Progress(stream)
    shown.run("a run")
    shown.window(1, 2, "w1")
    assert stream.getvalue() == "a run\n  window 1 of 2: w1\n"


LABEL = re.compile(r"^(\d+) of 4 done, (about|at most|an unknown time)")


class Logged(Testbed):
    """Keeps the label of every run, which is the line that a log has."""

    def __init__(self, monkeypatch, fate):
        super().__init__(monkeypatch, fate)
        self.labels = []

    def run_planned(self, experiment, run, options, attempt):
        self.labels.append(attempt.label)
        return super().run_planned(experiment, run, options, attempt)


def carry_out(path, results, stream=None):
    options = RunOptions(results=results, progress=Progress(stream or io.StringIO()))
    return run_sweep.carry_out(sweepfile.load(path), options)


def test_every_run_of_a_sweep_tells_how_far_all_is(tmp_path, monkeypatch):
    testbed = Logged(monkeypatch, all_valid)
    carry_out(write(tmp_path), tmp_path / "r")
    told = [re.match(r"\[(\S+): (\d+) of (\d+) done, (.*)\] ", label).groups() for label in testbed.labels]
    assert [(int(done), int(total)) for _, done, total, _ in told] == [(n, len(told)) for n in range(len(told))]
    assert re.fullmatch(r"about \d+ s left, until about .*\d\d:\d\d", told[-1][3])


def test_a_resumed_sweep_counts_what_was_done_before(tmp_path, monkeypatch):
    path, results = write(tmp_path), tmp_path / "r"
    count = 0

    def cut_off(folder, about, names):
        nonlocal count
        count += 1
        if count == 2:
            return ended(leave(folder, about, outcome="interrupted", windows=[]), Interrupted("Ctrl-C"))
        return all_valid(folder, about, names)

    first = Logged(monkeypatch, cut_off)
    outcome = carry_out(path, results)
    assert (outcome.done, outcome.status) == (1, Interrupted.exit_code)
    again = Logged(monkeypatch, all_valid)
    stream = io.StringIO()
    assert carry_out(path, results, stream).done == len(outcome.keys)
    assert again.labels[0].split("]")[0].startswith(first.labels[1].split(" done")[0])
    assert f"{len(outcome.keys)} measurements, 1 of them done" in stream.getvalue()


@pytest.mark.parametrize("new", [False, True])
def test_after_ctrl_c_a_line_says_how_to_resume(tmp_path, monkeypatch, new):
    monkeypatch.setattr(
        execute,
        "run_planned",
        lambda _experiment, _run, options, attempt: ended(
            leave(options.results, asdict(attempt.sweep), outcome="interrupted", windows=[]), Interrupted("Ctrl-C")
        ),
    )
    path = write(tmp_path)
    status, _, err = orch("sweep", str(path), "--results", str(tmp_path / "r"), *(["--new"] if new else []))
    assert status == 130
    again = "the same command without --new resumes it" if new else "the same command resumes it"
    assert re.search(rf"^sweep \S+ is interrupted: 0 of \d+ measurements are done; {again}$", err, re.MULTILINE)


def test_a_windows_run_counts_its_windows(tmp_path, monkeypatch):
    told = []

    def fate(results, about, names):
        stream = io.StringIO()
        progress = shown[0]
        progress._stream = stream
        for number, name in enumerate(names, start=1):
            progress.window(number, len(names), name)
        told.append(stream.getvalue())
        return ended(leave(results, about, windows=[window(name) for name in names]))

    Testbed(monkeypatch, fate)
    shown = [Progress(io.StringIO())]
    path = write(tmp_path, mode="windows")
    outcome = run_sweep.carry_out(sweepfile.load(path), RunOptions(results=tmp_path / "r", progress=shown[0]))
    counts = [int(count) for text in told for count in re.findall(r"\((\d+)/\d+", text)]
    assert counts[:3] == [0, 1, 2]
    assert outcome.done == len(outcome.keys)
