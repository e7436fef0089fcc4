"""An effect is shrunk to the smallest pair that shows it: by simulated measurements, and from sealed runs."""

from __future__ import annotations

import copy
import io
import json
import math
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from orchestrator.core.errors import ConfigError, Interrupted
from orchestrator.execution import execute, recovery
from orchestrator.execution.observers.progress import Progress
from orchestrator.execution.run_options import RunOptions
from orchestrator.execution.runner import Outcome
from orchestrator.experiment import loading, sweepfile
from orchestrator.experiment.experiment import resolved_data
from orchestrator.store import rundir
from orchestrator.sweep import choosing, pairs, reductions, shrinking, shrinktext
from orchestrator.sweep.pairs import Effect, Pair, Took
from orchestrator.sweep.shrinking import Shown, Shrinking
from tests.helpers.experiments import orch
from tests.helpers.night_runs import write_run
from tests.helpers.sweep_files import leave, window

QUICKSTART = Path("orchestrator/playbooks/experiments/quickstart.yaml")
ITERATION_S, START_S, USUAL = 0.2, 4.0, 100
BUDGET_S = 1800.0


def setting(*, load="8gbit", **keys):
    experiment, _ = loading.checked(QUICKSTART, [], local=False)
    data = {key: value for key, value in resolved_data(experiment).items() if key not in ("name", "repetitions")}
    data = copy.deepcopy(data)
    data["traffic"][0]["iperf"]["load"] = load
    return {**data, **keys}


def effect(ratio=1.05, **more):
    took = Took(window_s=USUAL * ITERATION_S, beside_s=START_S + 20 * ITERATION_S)
    pair = more.pop("pair", Pair(a=setting(), b=setting(load="12gbit")))
    return Effect(name="quickstart", pair=pair, of="mean", ratio=ratio, text="+5.0 %", took=took, **more)


class Simulated:
    """Stands where pairs are measured: runs take what their iterations do, and differ by 1 %, short ones by more.

    The effect needs three ranks.
    """

    def __init__(self, seed, *, ratio=1.05, noise=0.01):
        self.random, self.ratio, self.noise, self.measured = np.random.default_rng(seed), ratio, noise, []

    def true(self, definition):
        """The logarithm of the ratio that a pair has in truth."""
        return math.log(self.ratio) if len(definition.points[0].experiment.workload.config.hosts) >= 3 else 0.0

    def __call__(self, definition, within_s):
        self.measured.append(definition)
        measure, until = definition.points[0].experiment.measure, definition.until
        took = Took(window_s=measure.iterations * ITERATION_S, beside_s=START_S + measure.before * ITERATION_S)
        pair_s = 2 * took.window_s + (1 if definition.file.mode == "windows" else 2) * took.beside_s
        spread = self.noise * math.sqrt(2) * math.sqrt((1 + USUAL / measure.iterations) / 2)
        series = []
        while True:
            series.append({"training": self.true(definition) + self.random.normal(0, spread)})
            standing = choosing.of_ratio(series, until)
            if standing.ended or len(series) * pair_s >= within_s:
                break
            if len(series) == until.most:
                standing = replace(standing, ended="no more are allowed")
                break
        points = (definition.points[0].point, definition.points[1].point)
        return Shown(standing=replace(standing, points=points), seconds=len(series) * pair_s, took=took)


def shrunk(simulated, *, ratio=1.05, budget_s=BUDGET_S, **more):
    return Shrinking(effect(ratio, **more), simulated, budget_s, lambda _line: None).carry_out()


def test_five_per_cent_are_shrunk_to_a_file_of_minutes_that_shows_them_in_eight_of_ten_tries():
    good, wrong = 0, 0
    for seed in range(10):
        simulated = Simulated(seed)
        found = shrunk(simulated)
        true = simulated.true(found.definition) > 0
        good += found.seen and true and found.again.seconds <= 180
        wrong += found.seen and not true
        assert found.spent_s <= BUDGET_S
    assert good >= 8
    assert wrong <= 1


def test_what_is_kept_shows_the_effect_and_what_is_not_needed_is_left_out():
    found = shrunk(Simulated(0))
    kept = found.definition.points[0].experiment
    assert len(kept.workload.config.hosts) == 3
    assert kept.measure.iterations == 20
    assert kept.testbed.local.names == ("h1", "h2", "h3", "h5")
    assert not kept.collect
    assert {one.step for one in found.tried if one.verdict == "lost"} >= {"ranks 4 to 2"}
    assert any(one.verdict == "passed over" and "no calibrated compute time" in one.text for one in found.tried)


def test_an_effect_that_is_not_there_is_seen_in_no_file():
    found = shrunk(Simulated(1, ratio=1.0))
    assert not found.seen
    assert found.status == 3
    assert "it does not show the effect" in shrinktext.result_text(found)


def test_an_effect_of_the_other_sign_is_not_the_effect():
    found = shrunk(Simulated(2, ratio=1.05), ratio=0.95)
    assert not found.seen
    assert all(one.verdict != "held" for one in found.tried)


def test_a_step_that_held_by_chance_is_taken_back_when_the_effect_is_not_seen_again():
    class Lucky(Simulated):
        def __call__(self, definition, within_s):
            chance = definition.file.name.startswith("quickstart-shrink")
            lacking = len(definition.points[0].experiment.workload.config.hosts) < 3
            ratio, self.ratio = self.ratio, 1.05 if not lacking or chance else 1.0
            shown = super().__call__(definition, within_s)
            self.ratio = ratio
            return shown

        def true(self, _definition):
            return math.log(self.ratio)

    found = shrunk(Lucky(3, noise=0.002), budget_s=3600)
    assert found.seen
    assert len(found.definition.points[0].experiment.workload.config.hosts) == 4
    assert [one.step for one in found.tried if one.step.endswith("once more")]


def test_the_budget_is_kept_and_what_was_found_by_then_is_told():
    found = shrunk(Simulated(4), budget_s=400)
    assert found.spent_s <= 400
    assert "the budget of 7 min holds no further step" in found.ended


def test_the_file_that_is_written_is_the_sweep_that_was_measured(tmp_path):
    simulated = Simulated(5)
    found = shrunk(simulated)
    output = tmp_path / "small.yaml"
    shrinktext.write(found, output)
    assert sweepfile.load(output).digest == simulated.measured[-1].digest
    comment = [line for line in output.read_text().splitlines() if line.startswith("#")]
    assert comment[1] == "# traffic.0.iperf.load: 8gbit against 12gbit"
    assert any(line.startswith("# held: iterations 100 to 20") for line in comment)
    assert any(line.startswith("# measured once more, it shows the effect: mean +") for line in comment)
    assert json.loads(json.dumps(shrinktext.data(found, output), allow_nan=False))["seen"] is True


# What a pair is


def test_settings_that_differ_in_lists_and_parts_are_axes_of_named_values():
    quiet = Pair(a=setting(traffic=[]), b=setting())
    data = pairs.as_sweep(quiet, "q", of="mean", excluded=0.02)
    assert data["axes"]["traffic"]["named"]["A"] == []
    assert [len(point.experiment.traffic) for point in pairs.definition(data).points] == [0, 1]


def test_several_differences_go_hand_in_hand_and_each_is_tried_without():
    other = setting(load="12gbit", conditions=[])
    both = Pair(a=setting(), b=other)
    found = pairs.definition(pairs.as_sweep(both, "q", of="mean", excluded=0.02))
    assert len(found.points) == 2
    assert len(found.sides) == 1
    ladders = reductions.ladders(both)
    alike = [step for name in ladders if name.startswith("difference ") for step in ladders[name]]
    assert [set(pairs.difference(step.pair)) for step in alike] == [{"traffic.0.iperf.load"}, {"conditions"}]


def test_no_step_makes_both_sides_alike_and_both_become_smaller_together():
    for ladder in reductions.ladders(effect().pair).values():
        for step in ladder:
            assert set(pairs.difference(step.pair)) == {"traffic.0.iperf.load"}


def test_sides_are_in_one_run_only_while_their_traffic_alone_differs():
    assert "runs" in reductions.ladders(effect().pair)
    models = setting(workload={"ddp": {**setting()["workload"]["ddp"], "model": "vgg16"}})
    assert "runs" not in reductions.ladders(Pair(a=setting(), b=models))


# From sealed runs


def sealed_sweep(results, *, slower=1.25, testbed=None):
    local = {"local": {"hosts": 3, "link": "25gbit", "scale": 100}}
    iperf = {"from": "h1", "to": "h3", "load": "8gbit"}
    also = {
        "name": "nightly",
        "testbed": testbed or local,
        "workload": {"ddp": {"model": "resnet50", "hosts": ["h1", "h2"]}},
        "measure": {"iterations": 100},
        "windows": [
            {"name": f"load{load}", "traffic": [{"iperf": {**iperf, "load": f"{load}gbit"}}]} for load in (1, 8)
        ],
    }
    for repetition in range(1, 6):
        levels = {"load1": 0.16, "load8": 0.16 * slower}
        write_run(results, repetition=repetition, seconds=levels, also=also)


def test_the_effect_of_an_axis_of_a_sealed_sweep_is_two_experiments(tmp_path):
    sealed_sweep(tmp_path)
    found = pairs.effect(tmp_path, "nightly", None, by="load")
    assert found.ratio == pytest.approx(1.25, rel=0.02)
    assert pairs.difference(found.pair) == {"traffic.0.iperf.load": ("1gbit", "8gbit")}
    assert found.excluded == pytest.approx(0.125, rel=0.05)
    assert found.pair.together


def test_what_would_be_tried_is_printed_and_nothing_is_measured(tmp_path):
    sealed_sweep(tmp_path)
    status, told, _ = orch("shrink", "nightly", "--by", "load", "--what", "--results", str(tmp_path))
    assert status == 0
    assert "traffic.0.iperf.load: 1gbit against 8gbit" in told
    assert "iterations 100 to 20: " in told
    assert not [path for path in tmp_path.iterdir() if "shrink" in path.name]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nightly", "nightly", "--by", "load"), "--by: stands beside B"),
        (("nightly", "--by", "load", "--budget", "0s"), "--budget"),
        (("nightly", "--by", "load", "--budget", "soon"), "--budget"),
        (("nightly", "--by", "model"), "'model' names no axes"),
        (("nightly", "--by", "load", "--where", "load>99gbit"), "no point of those that --where leaves"),
    ],
)
def test_a_mistake_is_told_in_a_line(tmp_path, arguments, said):
    sealed_sweep(tmp_path)
    status, _, told = orch("shrink", *arguments, "--results", str(tmp_path))
    assert status == 2
    assert said in told


def test_equals_have_nothing_to_shrink(tmp_path):
    sealed_sweep(tmp_path, slower=1.0)
    with pytest.raises(ConfigError, match="nothing to shrink"):
        pairs.effect(tmp_path, "nightly", None, by="load")


def test_hosts_of_others_are_reached_by_a_named_testbed_alone(tmp_path):
    ends = {
        name: {"address": f"10.0.0.{place}/24", "device": "eth1"} for place, name in enumerate(("h1", "h2", "h3"), 1)
    }
    inventory = {"link": "25gbit", "hosts": {name: {"ssh": name, "data": end} for name, end in ends.items()}}
    sealed_sweep(tmp_path, testbed={"inventory": inventory})
    asked = ("shrink", "nightly", "--by", "load", "--what", "--results", str(tmp_path))
    status, _, told = orch(*asked)
    assert status == 1
    assert "reached only by a testbed that you name" in told
    mine = tmp_path / "mine.yaml"
    mine.write_text(yaml.safe_dump(inventory))
    status, told, _ = orch(*asked, "--testbed", str(mine))
    assert status == 0
    assert "iterations 100 to 20: " in told


# By runs


class Runs:
    """Stands where runs are carried out: the side of more load is slower by 30 %; a run may be cut off, or invalid."""

    def __init__(self, monkeypatch, *, cut=(), invalid=()):
        self.count, self.cut, self.invalid = 0, cut, invalid
        monkeypatch.setattr(execute, "run_planned", self.run_planned)
        monkeypatch.setattr(recovery, "seal", lambda entry, _named: entry)

    def run_planned(self, experiment, _run, options, attempt):
        self.count += 1
        about = asdict(attempt.sweep)
        if self.count in self.cut:
            path = leave(options.results, about, outcome="interrupted")
            return Outcome(path=path, manifest=rundir.entry_at(path).manifest, error=Interrupted("cut off"))
        windows = [self._window(name, one, experiment) for name, one in about["points"].items()]
        path = leave(options.results, about, windows=windows)
        return Outcome(path=path, manifest=rundir.entry_at(path).manifest, error=None)

    def _window(self, name, one, experiment):
        slow = one["values"]["traffic.0.iperf.load"] == "12gbit"
        draw = np.random.default_rng([one["repetition"], slow]).normal(0, 0.002)
        valid = experiment.measure.iterations not in self.invalid
        return window(name, mean_s=0.1 * (1.3 if slow else 1.0) * math.exp(draw), valid=valid)


def by_runs(results, monkeypatch, *, pair=None, **more):
    runs = Runs(monkeypatch, **more)
    options = RunOptions(results=results, progress=Progress(io.StringIO()), force=True)
    few = Pair(a=setting(collect=[], conditions=[]), b=setting(load="12gbit", collect=[], conditions=[]))
    return runs, Shrinking(effect(1.3, pair=pair or few), shrinking.by_runs(options), 7200, lambda _line: None)


def test_pairs_are_measured_as_sweeps_and_a_search_that_is_cut_off_goes_on_as_it_would_have(tmp_path, monkeypatch):
    whole_runs, search = by_runs(tmp_path / "whole", monkeypatch)
    whole = search.carry_out()
    assert whole.seen
    assert [one.verdict for one in whole.tried if one.verdict != "passed over"].count("held") >= 3
    cut_runs, search = by_runs(tmp_path / "cut", monkeypatch, cut=(3, 21))
    for _ in range(2):
        with pytest.raises(Interrupted, match="the same command goes on"):
            search.carry_out()
        search = replace(search, tried=[], spent_s=0.0, _kept=[], _lost={}, _out=set())
    again = search.carry_out()
    assert cut_runs.count == whole_runs.count + 2
    assert again.definition.digest == whole.definition.digest
    assert [one.step for one in again.tried] == [one.step for one in whole.tried]


def test_a_pair_of_which_nothing_is_valid_is_given_up_early(tmp_path, monkeypatch):
    _, search = by_runs(tmp_path, monkeypatch, invalid=(20, 40, 80))
    found = search.carry_out()
    assert [one.text for one in found.tried if one.step == "iterations 100 to 20"] == [
        "no repetition is valid: the load is missed"
    ]
    assert found.definition.points[0].experiment.measure.iterations == 100
    tried = [path for path in tmp_path.glob("*-shrink-*") if path.is_dir()]
    fewest = min(len(list(path.iterdir())) for path in tried)
    assert fewest <= 2 * shrinking._HOPELESS
    assert yaml.safe_load(shrinktext.file_text(found))["experiment"]["measure"]["iterations"] == 100
