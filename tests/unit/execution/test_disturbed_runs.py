"""A run that other work disturbed is measured again, told as such, and leaves a sentence on what to do."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from orchestrator.core.exitcodes import Exit
from orchestrator.execution import execute, runner
from tests.helpers import manifests
from tests.helpers.experiments import GOOD, orch

VALID: tuple[str, ...] = ()
TIMES = [f"{which}{end}_s" for which in ("mean", "p50", "p99") for end in ("", "_low", "_high")]
GATES = ("iterations", "load", "processor", "drift")


def manifest(failed, *, repetition, run, outcome="completed"):
    gates = [{"name": name, "passed": name not in failed, "message": f"{name} is bad"} for name in GATES]
    window = {
        "name": "w1",
        "start_ns": 1,
        "end_ns": 2,
        "valid": not failed,
        "reasons": list(failed),
        "gates": gates,
        "lost": "the load is missing" if "lost" in failed else "",
        "training": [{"job": "training", "iterations": 100, **dict.fromkeys(TIMES, 0.1), "sent_bytes": 1.0}],
    }
    return manifests.made(
        run=run,
        repetition=repetition,
        valid=not failed and outcome == "completed",
        outcome=outcome,
        stage="sealed",
        reasons=[f"{name} is bad" for name in failed],
        windows=[window],
    )


@pytest.fixture
def runs_that(monkeypatch, tmp_path):
    """Have the tries of `orch run` end so, one after the other; gives its status and what it printed."""

    def go(*tries, repetitions, attempts, options=(), more=""):
        left = iter(tries)
        labels = []

        def run_planned(_experiment, run, _options, attempt):
            failed = next(left)
            labels.append(attempt.label)
            number = len(labels)
            outcome = "failed" if failed == "failed" else "completed"
            found = manifest(
                () if outcome == "failed" else failed, repetition=run.repetition, run=f"r{number}", outcome=outcome
            )
            return runner.Outcome(Path(f"/r/t/r{number}"), found, None)

        monkeypatch.setattr(execute, "run_planned", run_planned)
        path = tmp_path / "e.yaml"
        path.write_text(GOOD + f"repetitions: {repetitions}\nattempts: {attempts}\n{more}")
        status, out, err = orch("run", str(path), "--no-report", *options)
        assert next(left, None) is None, "each try was made"
        return status, out, labels, err

    return go


BUSY, DRIFT = ("processor", "load"), ("drift",)


def test_a_disturbed_run_is_measured_again_and_the_last_try_counts(runs_that):
    status, out, labels, _ = runs_that(VALID, BUSY, DRIFT, VALID, repetitions=2, attempts=3)
    assert status == Exit.OK
    assert labels[1:] == ["run 2 of 2", *(f"run 2 of 2 again, since it was disturbed (try {n} of 3)" for n in (2, 3))]
    assert [line.split()[-1] for line in out.splitlines() if line.startswith(("#1 ", "#2 ")) and " w1 " in line] == [
        "valid",
        "again",
        "again",
        "valid",
    ]
    assert "#2 r2: measured again" in out
    assert "INVALID" not in out


@pytest.mark.parametrize("failed", [("load",), ("load", "drift"), ("iterations",)])
def test_what_does_not_pass_by_itself_is_not_tried_again(runs_that, failed):
    status, out, _, _ = runs_that(failed, repetitions=1, attempts=3)
    assert status == Exit.INCONCLUSIVE
    assert "0 of 1 runs are valid. The reasons above say why" in out


def test_a_run_that_failed_is_not_tried_again(runs_that):
    _, out, _, _ = runs_that("failed", VALID, repetitions=2, attempts=3)
    assert "runs are valid" not in out


def test_one_attempt_is_the_default_of_an_experiment(runs_that):
    assert runs_that(BUSY, repetitions=1, attempts=1)[0] == Exit.INCONCLUSIVE


def test_runs_that_stay_disturbed_end_with_what_works_what_disturbed_them_and_what_to_do(runs_that):
    status, out, _, _ = runs_that(VALID, BUSY, BUSY, VALID, repetitions=3, attempts=2)
    assert status == Exit.INCONCLUSIVE
    end = out.splitlines()[-3:]
    assert end[0] == (
        "2 of 3 runs are valid. Every run was measured whole: hosts, training, cross traffic and collectors work."
    )
    assert end[1].startswith("Other work on this machine disturbed #2: ")
    assert "give the same command again" in end[2]


def test_json_says_which_tries_count(runs_that):
    _, out, _, _ = runs_that(BUSY, VALID, repetitions=1, attempts=2, options=["--json"])
    assert [run["counts"] for run in json.loads(out)["runs"]] == [False, True]


LOST = ("load", "lost")


@pytest.mark.parametrize(("attempts", "tries"), [(1, 2), (3, 3)])
def test_a_run_of_which_a_window_was_lost_is_measured_again_so_often_and_no_more(runs_that, attempts, tries):
    status, out, labels, _ = runs_that(*[LOST] * tries, repetitions=1, attempts=attempts, more="lost: again\n")
    assert status == Exit.INCONCLUSIVE
    assert labels[1:] == [f"run 1 of 1 again, since w1 was lost (try {n} of {tries})" for n in range(2, tries + 1)]
    assert "#1 r1: measured again" in out


def test_what_is_measured_is_the_same_point_with_and_without_it(tmp_path):
    found = []
    for more in ("", "lost: again\n"):
        path = tmp_path / "e.yaml"
        path.write_text(GOOD + more)
        _, out, _ = orch("plan", str(path))
        found.append(out)
        (point,) = re.findall(r"point (\w+)", out)
        assert point == re.findall(r"point (\w+)", found[0])[0]
    assert ["a window that is lost already ends early, and is measured again" in out for out in found] == [False, True]


@pytest.mark.parametrize(
    ("axis", "accepted"),
    [("attempts: [1, 2]", "attempts of the sweep, beside axes"), ("lost: [again]", "lost: again in the experiment")],
)
def test_tries_are_no_axis_of_a_sweep(tmp_path, axis, accepted):
    (tmp_path / "e.yaml").write_text(GOOD)
    path = tmp_path / "s.yaml"
    path.write_text(f"name: s\nexperiment: e.yaml\naxes: {{{axis}}}\n")
    status, _, err = orch("plan", str(path))
    assert status == Exit.MISTAKE
    assert f"accepted: {accepted}" in err


def test_a_sweep_says_that_tries_end_when_they_are_lost(tmp_path):
    (tmp_path / "e.yaml").write_text(GOOD + "lost: again\n")
    path = tmp_path / "s.yaml"
    path.write_text("name: s\nexperiment: e.yaml\naxes: {traffic.0.iperf.load: [100mbit, 200mbit]}\n")
    _, out, _ = orch("plan", str(path))
    assert "each tried 2 times at most, and no further in a try once it is lost" in out
