"""A sweep that looks for where a curve bends: few of its points are measured, in an order that follows from the log."""

from __future__ import annotations

import html
import io
import math
from dataclasses import asdict

import numpy as np
import pytest

from orchestrator.analysis.stats import onset
from orchestrator.core.errors import ConfigError, Interrupted
from orchestrator.execution import execute, recovery
from orchestrator.execution.observers.progress import Progress
from orchestrator.execution.run_options import RunOptions
from orchestrator.execution.runner import Outcome
from orchestrator.experiment import sweepfile
from orchestrator.report import choices_page
from orchestrator.store import rundir
from orchestrator.sweep import run_sweep, searching
from orchestrator.sweep.searching import Answer, Next, Sample, Search
from tests.helpers.experiments import orch
from tests.helpers.sweep_files import leave, window

SWEEP = """\
name: s
axes:
  traffic.0.iperf.load: {find: FIND, from: 0, to: 24, within: 0.5, unit: gbit}
experiment:
  testbed: {local: {hosts: 3, link: 25gbit, scale: 100}}
  workload: {ddp: {model: resnet50, hosts: [h1, h2]}}
  traffic:
    - iperf: {from: h1, to: h3, load: 1gbit}
  measure: {warmup: 5, iterations: 10}
"""


def seconds(load_gbps):
    """A training that computes for 160 ms and sends 1.6 Gbit: it fills 25 Gbit/s from 15 Gbit/s of other traffic on."""
    return (0.16**8 + (1.6 / (25 - load_gbps)) ** 8) ** (1 / 8)


TRUE = onset.onset(np.arange(0, 25.0), seconds(np.arange(0, 25.0)), 24.0).crossing_gbps


def write(folder, find="knee", **more):
    path = folder / "s.yaml"
    path.write_text("".join(f"{key}: {value}\n" for key, value in more.items()) + SWEEP.replace("FIND", find))
    return path


class Simulated:
    """Stands where runs are carried out: a measurement is what its load and repetition say, whenever it is made."""

    def __init__(self, monkeypatch, *, noise=0.002, invalid_from=math.inf, cut=()):
        self.noise, self.invalid_from, self.cut, self.loads = noise, invalid_from, cut, []
        monkeypatch.setattr(execute, "run_planned", self.run_planned)
        monkeypatch.setattr(recovery, "seal", lambda entry, _named: entry)

    def run_planned(self, _experiment, _run, options, attempt):
        about = asdict(attempt.sweep)
        ((name, one),) = about["points"].items()
        load = float(one["values"]["traffic.0.iperf.load"].removesuffix("gbit").removesuffix("bit"))
        cut = len(self.loads) in self.cut
        self.loads.append(load)
        draw = np.random.default_rng([3, one["repetition"], int(load)]).normal()
        mean_s = seconds(load) * math.exp(self.noise * draw)
        found = [] if cut else [window(name, mean_s=mean_s, valid=load < self.invalid_from)]
        path = leave(options.results, about, windows=found, outcome="interrupted" if cut else "completed")
        error = Interrupted("cut off") if cut else None
        return Outcome(path=path, manifest=rundir.entry_at(path).manifest, error=error)


def carry_out(path, results):
    options = RunOptions(results=results, progress=Progress(told := io.StringIO()), salt="one")
    return run_sweep.carry_out(sweepfile.load(path), options), told.getvalue()


def test_a_knee_is_found_by_few_measurements_where_theory_predicts_it(tmp_path, monkeypatch):
    testbed = Simulated(monkeypatch)
    outcome, told = carry_out(write(tmp_path), tmp_path / "r")
    (bend,) = outcome.bends
    assert outcome.status == 0
    assert bend.found.where.value == pytest.approx(TRUE, abs=0.5)
    assert bend.found.where.high - bend.found.where.low <= 1
    assert len(testbed.loads) == len(bend.steps) <= 12
    assert "where the bend is predicted" in [why for _, why in bend.steps]
    assert "next load, between" in told
    page = choices_page.write(sweepfile.load(write(tmp_path)), outcome)
    assert all(why in html.unescape(page.read_text()) for _, why in bend.steps)


def test_a_search_that_is_cut_off_anywhere_goes_on_and_ends_the_same(tmp_path, monkeypatch):
    whole = Simulated(monkeypatch, noise=0.006)
    outcome, _ = carry_out(write(tmp_path), tmp_path / "whole")
    for number in range(len(whole.loads)):
        testbed = Simulated(monkeypatch, noise=0.006, cut=(number,))
        results = tmp_path / f"cut{number}"
        first, _ = carry_out(write(tmp_path), results)
        assert isinstance(first.bends[0].found, Next)
        again, _ = carry_out(write(tmp_path), results)
        assert again.bends == outcome.bends
        assert testbed.loads == [*whole.loads[: number + 1], *whole.loads[number:]]


def test_a_threshold_is_where_the_line_between_neighbours_crosses_it(tmp_path, monkeypatch):
    Simulated(monkeypatch)
    outcome, _ = carry_out(write(tmp_path, '"+20%"'), tmp_path / "r")
    true = np.interp(1.2 * seconds(0), seconds(np.arange(0, 25)), np.arange(0, 25))
    where = outcome.bends[0].found.where
    assert where.value == pytest.approx(true, abs=0.5)
    assert where.low <= where.value <= where.high <= where.low + 1


def test_the_first_invalid_load_lies_between_two_neighbours(tmp_path, monkeypatch):
    testbed = Simulated(monkeypatch, invalid_from=17)
    outcome, _ = carry_out(write(tmp_path, "first-invalid", attempts="2"), tmp_path / "r")
    where = outcome.bends[0].found.where
    assert (where.low, where.value, outcome.status) == (16, 17, 0)
    assert len(testbed.loads) <= 9
    assert max(testbed.loads.count(load) for load in testbed.loads if load >= 17) == 2, "each is tried twice"


@pytest.mark.parametrize(
    ("slower", "invalid_from", "why"),
    [(0.1, 1.0, "lowest place is not valid"), (100.0, 99.0, "no place is slower"), (0.1, 15.0, "is not valid")],
)
def test_where_nothing_bends_the_answer_says_why(slower, invalid_from, why):
    search = Search(places=tuple(range(1, 25)), knee=True, slower=slower, within=0.5, most=20)
    samples = {}
    while isinstance(found := searching.step(search, samples), Next):
        load = search.places[found.place]
        logs = [math.log(seconds(load))] if load < invalid_from else []
        samples[found.place] = samples.get(found.place, Sample()).with_measured(logs)
        assert sum(one.tried for one in samples.values()) <= 25
    assert isinstance(found, Answer)
    assert math.isnan(found.where.value)
    assert why in found.why


def test_noise_is_met_by_measuring_again_until_no_more_is_allowed():
    search = Search(places=tuple(range(25)), knee=False, slower=0.1, within=0.01, most=15)
    random, samples = np.random.default_rng(1), {}
    while isinstance(found := searching.step(search, samples), Next):
        logs = [math.log(seconds(search.places[found.place])) + 0.01 * random.normal()]
        samples[found.place] = samples.get(found.place, Sample()).with_measured(logs)
    assert sum(one.tried for one in samples.values()) == 15
    assert found.where.high - found.where.low > 0.02
    assert "no more" in found.why


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("find: FIND", "find: bend", "nothing that can be found; accepted: knee, first-invalid"),
        ("find: FIND", 'find: "10%"', "nothing that can be found"),
        (", within: 0.5", "", "within: 0.5 beside it"),
        ("from: 0, to: 24, within: 0.5", "values: [1, 2], within: 0.5", "from and to beside it"),
        ("name: s", "name: s\nrepetitions: 2", "no repetitions"),
        ("name: s", "name: s\nuntil: {interval: 2%}", "no until"),
        ("axes:", "axes:\n  measure.iterations: {find: knee, from: 10, to: 20, within: 1}", "one thing is found"),
        ("within: 0.5", "witin: 0.5", "witin"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_would(tmp_path, old, new, message):
    path = write(tmp_path)
    text = SWEEP.replace(old, new, 1).replace("FIND", "knee")
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        sweepfile.load(path)


def test_a_plan_says_what_is_looked_for(tmp_path):
    status, out, err = orch("plan", str(write(tmp_path)), "--results", str(tmp_path / "r"))
    assert status == 0, err
    assert "looks for the knee along traffic.0.iperf.load, within 0.5gbit: at most 20 measurements of each curve" in out
    assert "load=0bit" in out
