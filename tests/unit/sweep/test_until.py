"""A sweep that goes on until it is known: what it asks for follows from what was measured, wherever it was cut off."""

from __future__ import annotations

import io
import math
from dataclasses import asdict

import numpy as np
import pytest

from orchestrator.analysis.stats import stopping
from orchestrator.core.errors import ConfigError, Interrupted
from orchestrator.execution import execute, recovery
from orchestrator.execution.observers.progress import Progress
from orchestrator.execution.run_options import RunOptions
from orchestrator.execution.runner import Outcome
from orchestrator.experiment import sweepfile
from orchestrator.experiment.until import Until
from orchestrator.report import choices_page
from orchestrator.store import rundir
from orchestrator.sweep import choosing, run_sweep
from tests.helpers.experiments import orch
from tests.helpers.sweep_files import leave, window, write

NOISE = {"0bit": 0.0005, "100mbit": 0.015, "200mbit": 0.2}  # by load: narrow at once, after some, never


def until(**keys):
    return Until.model_validate({"interval": "2%", **keys})


class Simulated:
    """Stands where runs are carried out: a measurement is what its point and repetition say, whenever it is made."""

    def __init__(self, monkeypatch, *, cut=(), bad=(), slower=1.0):
        self.runs, self.cut, self.bad, self.slower = [], cut, bad, slower
        monkeypatch.setattr(execute, "run_planned", self.run_planned)
        monkeypatch.setattr(recovery, "seal", lambda entry, _named: entry)

    def run_planned(self, _experiment, run, options, attempt):
        about = asdict(attempt.sweep)
        number = len(self.runs)
        windows = [self._window(name, one) for name, one in about["points"].items()]
        self.runs.append(sorted((one["point"], one["repetition"]) for one in about["points"].values()))
        if number in self.cut:
            path = leave(options.results, about, windows=[], outcome="interrupted")
            return Outcome(path=path, manifest=rundir.entry_at(path).manifest, error=Interrupted("cut off"))
        path = leave(options.results, about, windows=windows)
        return Outcome(path=path, manifest=rundir.entry_at(path).manifest, error=None)

    def _window(self, name, one):
        load, model = one["values"]["traffic.0.iperf.load"], one["values"]["workload.ddp.model"]
        draw = np.random.default_rng([7, one["repetition"], *one["point"].encode()]).normal()
        slower = self.slower if model == "vgg16" else 1.0
        valid = (load, one["repetition"]) not in self.bad
        return window(name, mean_s=0.1 * slower * math.exp(NOISE[load] * draw), valid=valid)


def carry_out(path, results, **options):
    definition = sweepfile.load(path)
    told = io.StringIO()
    outcome = run_sweep.carry_out(definition, RunOptions(results=results, progress=Progress(told)), **options)
    return definition, outcome, told.getvalue()


def by_load(definition, outcome):
    points = {point.point: point.values for point in definition.points}
    return {
        load: [one for one in outcome.standings if points[one.points[0]]["traffic.0.iperf.load"] == load]
        for load in NOISE
    }


@pytest.mark.parametrize("mode", ["runs", "windows"])
def test_each_point_is_repeated_until_its_interval_is_narrow_or_repetitions_are_the_most(tmp_path, monkeypatch, mode):
    Simulated(monkeypatch)
    path = write(tmp_path, mode=mode, until="{interval: 2%, most: 8}")
    definition, outcome, told = carry_out(path, tmp_path / "r")
    found = by_load(definition, outcome)
    assert outcome.status == 0
    assert [one.count for one in found["0bit"]] == [3, 3]
    assert max(one.count for one in found["100mbit"]) > 3
    assert all(one.count < 8 and one.reach <= 0.02 for one in found["100mbit"])
    assert all(one.count == 8 and one.reach > 0.02 and "no more are allowed" in one.ended for one in found["200mbit"])
    assert len(outcome.keys) == sum(one.count for one in outcome.standings)
    assert told.count("it is known") == 4
    page = choices_page.write(definition, outcome)
    assert page.read_text().count("no more are allowed") == 2
    assert "after 8 repetitions: no more are allowed" in told


@pytest.mark.parametrize("mode", ["runs", "windows"])
@pytest.mark.parametrize("extra", ["", "budget"])
def test_a_sweep_that_is_cut_off_anywhere_goes_on_and_ends_the_same(tmp_path, monkeypatch, mode, extra):
    lines = {"mode": mode, "until": "{interval: 2%, most: 6}", **({"budget": "400s"} if extra else {})}
    path = write(tmp_path, **lines)
    definition = sweepfile.load(path)
    salt = {"salt": "one"}

    def once(results, cut):
        testbed = Simulated(monkeypatch, cut=cut)
        for _ in range(len(cut) + 1):
            options = RunOptions(results=results, progress=Progress(io.StringIO()), **salt)
            outcome = run_sweep.carry_out(definition, options)
        kept = [keys for number, keys in enumerate(testbed.runs) if number not in cut]
        return kept, outcome.standings, set(outcome.keys)

    whole = once(tmp_path / "whole", ())
    for number in range(0, len(whole[0]), 3):
        cut = once(tmp_path / f"cut{number}", (number,))
        assert cut[1:] == whole[1:] if not extra else cut[0][: number + 1] == whole[0][: number + 1]
        if not extra:
            assert cut[0] == whole[0]


def test_a_measurement_that_never_counts_is_left_out_and_others_go_on(tmp_path, monkeypatch):
    Simulated(monkeypatch, bad=[("0bit", 2)])
    definition, outcome, _ = carry_out(write(tmp_path, until="{interval: 2%, most: 5}"), tmp_path / "r")
    counts = {one.count for one in by_load(definition, outcome)["0bit"]}
    assert counts == {3}, "three of four repetitions"
    assert outcome.status == 3
    assert all(outcome.ledger.tries[key] == 2 for key in outcome.keys if key not in outcome.ledger.done)


@pytest.mark.parametrize(
    ("slower", "ended"), [(1.1, "they differ"), (1.0, "they differ by less than that")], ids=["differ", "same"]
)
def test_two_sides_are_measured_until_they_differ_or_are_the_same(tmp_path, monkeypatch, slower, ended):
    Simulated(monkeypatch, slower=slower)
    sides = "{effect: 5%, between: {model: resnet50}, and: {model: vgg16}, most: 12}"
    definition, outcome, _ = carry_out(write(tmp_path, until=sides), tmp_path / "r")
    quiet, middle, wild = (one for of in by_load(definition, outcome).values() for one in of)
    assert (quiet.ended, middle.ended) == (ended, ended)
    assert quiet.estimate.value == pytest.approx(slower, rel=0.01)
    assert quiet.count == 3 <= wild.count
    per_point = [sum(key[0] == name for key in outcome.keys) for name in wild.points]
    assert per_point == [wild.count] * 2, "both sides are repeated together"


def test_a_budget_goes_where_it_narrows_most(tmp_path, monkeypatch):
    Simulated(monkeypatch)
    path = write(tmp_path, until="{interval: 0.1%, most: 50}", budget="400s")
    definition, outcome, _ = carry_out(path, tmp_path / "r")
    found = by_load(definition, outcome)
    most = {load: max(one.count for one in standings) for load, standings in found.items()}
    assert most["0bit"] <= most["100mbit"] < most["200mbit"]
    assert outcome.ledger.spent_s <= 400
    assert any("beyond the budget" in one.ended for one in outcome.standings)


def test_a_budget_that_is_smaller_than_the_fewest_repetitions_has_these_all_the_same(tmp_path, monkeypatch):
    Simulated(monkeypatch)
    _, outcome, _ = carry_out(write(tmp_path, until="{interval: 1%}", budget="1s"), tmp_path / "r")
    assert {one.count for one in outcome.standings} == {3}


def test_the_rule_looks_at_prefixes_alone():
    logs = np.random.default_rng(3).normal(-2, 0.01, 20)
    series = [{"training": float(one)} for one in logs]
    ends = choosing.of_level(series, until())
    assert 3 < ends.count < 20
    for more in range(ends.count, 21):
        assert choosing.of_level(series[:more], until()) == ends
    for fewer in range(ends.count):
        assert not choosing.of_level(series[:fewer], until()).ended


def test_the_job_that_is_known_least_decides():
    random = np.random.default_rng(4)
    series = [{"a": float(random.normal(0, 1e-4)), "b": float(random.normal(0, 0.05))} for _ in range(4)]
    assert choosing.of_level([{"a": one["a"]} for one in series], until()).ended
    assert not choosing.of_level(series, until()).ended


@pytest.mark.parametrize("least", [2, 3, 6])
@pytest.mark.parametrize("ratio", [0.3, 0.6, 1.0, 2.0])
def test_after_stopping_by_width_95_of_100_intervals_hold(least, ratio):
    nominal = stopping.nominal_by_width(least, 15)
    assert nominal < 0.05
    held = []
    for draws in np.random.default_rng(5).normal(size=(400, 15)):
        halves = (stopping.half_width(draws[:count], nominal) for count in range(least, 16))
        count, half = next(((n, h) for n, h in enumerate(halves, start=least) if h <= ratio or n == 15))
        held.append(abs(np.mean(draws[:count])) <= half)
    assert np.mean(held) > 0.92


def test_looking_for_an_effect_at_every_repetition_finds_none_in_95_of_100():
    nominal, plain = stopping.nominal_by_any_rule(3, 15), 0.05
    draws = np.random.default_rng(6).normal(size=(400, 15))

    def alarms(error):
        return np.mean(
            [any(abs(np.mean(one[:n])) > stopping.half_width(one[:n], error) for n in range(3, 16)) for one in draws]
        )

    assert alarms(nominal) < 0.08
    assert alarms(plain) > 0.12, "what it is corrected for"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"until": "{interval: 2%}", "repetitions": "3"}, "exactly one of repetitions, until"),
        ({"until": "{}"}, "exactly one of interval, effect"),
        ({"until": "{interval: 2%, effect: 3%}"}, "exactly one of interval, effect"),
        ({"until": "{interval: 2}"}, "until.interval: .*not a share"),
        ({"until": "{interval: 2%, widht: 3}"}, "until.widht"),
        ({"until": "{interval: 2%, of: p90}"}, "until.of"),
        ({"until": "{interval: 2%, least: 1}"}, "until.least"),
        ({"until": "{interval: 2%, least: 5, most: 4}"}, "until.most.*accepted: 5 or more"),
        ({"until": "{interval: 2%, between: {model: vgg16}}"}, "until.between.*stands without effect"),
        ({"until": "{effect: 3%}"}, "two sides are compared"),
        ({"until": "{effect: 3%, between: {model: a}, and: {load: b}}"}, "other axes than between"),
        ({"until": "{effect: 3%, between: {mode: a}, and: {mode: b}}"}, "no single axis mode"),
        ({"until": "{effect: 3%, between: {model: vgg16}, and: {model: vgg16}}"}, "no two points differ"),
        ({"until": "{effect: 3%, between: {model: vgg16}, and: {model: vgg19}}"}, "no two points differ"),
        ({"budget": "2h"}, "until: .interval: 2%. beside it"),
        ({"budget": "2h", "until": "{effect: 3%, between: {model: vgg16}, and: {model: resnet50}}"}, "to be narrowed"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_would(tmp_path, more, message):
    with pytest.raises(ConfigError, match=message):
        sweepfile.load(write(tmp_path, **more))


def test_the_definition_covers_the_question_and_older_sweeps_are_as_they_were(tmp_path):
    plain, first, second = (
        sweepfile.load(write(tmp_path, **more)).digest
        for more in ({"repetitions": "3"}, {"until": "{interval: 2%}"}, {"until": "{interval: 3%}"})
    )
    assert len({plain, first, second}) == 3


def test_a_plan_says_fewest_most_and_what_is_likely(tmp_path):
    path = write(tmp_path, until="{interval: 2%, most: 9}")
    status, out, _ = orch("plan", str(path), "--results", str(tmp_path / "r"))
    assert status == 0
    assert "6 points, at least 3 times each" in out
    assert "each measured 3 to 9 times, until the interval of the mean reaches 2% at most" in out
    assert "0.5 % (standard deviation), which is assumed" in out
    assert "if all ends early" in out
