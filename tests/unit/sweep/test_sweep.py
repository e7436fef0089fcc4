"""A sweep as its controller sees it: what is missing, what is tried again, what is given up, whatever cuts it off."""

from __future__ import annotations

import io
import random
from dataclasses import asdict, replace

import pytest

from orchestrator.core import where
from orchestrator.core.errors import ConfigError, Interrupted, LaunchError, StoreError
from orchestrator.core.exitcodes import Exit
from orchestrator.execution import execute, recovery
from orchestrator.execution.observers.progress import Progress
from orchestrator.execution.run_options import RunOptions
from orchestrator.execution.runner import Outcome
from orchestrator.experiment import sweepfile
from orchestrator.store import rundir, sweeps
from orchestrator.store.manifests import manifest
from orchestrator.store.stamps import MANIFEST
from orchestrator.sweep import run_sweep
from tests.helpers.experiments import orch
from tests.helpers.sweep_files import leave, window, write


class Testbed:
    """Stands where runs are carried out, and leaves behind what a run would whose windows went as `fate` says."""

    __test__ = False

    def __init__(self, monkeypatch, fate):
        self.fate = fate
        self.runs = []
        monkeypatch.setattr(execute, "run_planned", self.run_planned)
        monkeypatch.setattr(recovery, "seal", self.seal)

    def run_planned(self, experiment, run, options, attempt):
        sweep = attempt.sweep
        names = [planned.name for planned in run.windows]
        self.runs.append([sweep.points[name].values for name in names])
        return self.fate(options.results, asdict(sweep), names)

    def seal(self, entry, _named):
        return rundir.RunFolder(entry.path, replace(entry.manifest, outcome="lost")).seal()


def ended(path, error=None):
    return Outcome(path=path, manifest=rundir.entry_at(path).manifest, error=error)


def all_valid(results, about, names):
    return ended(leave(results, about, windows=[window(name) for name in names]))


def carry_out(path, results, *, new=False, conditions=(), salt=None):
    definition = sweepfile.load(path)
    options = RunOptions(results=results, progress=Progress(io.StringIO()), salt=salt)
    return run_sweep.carry_out(definition, options, new=new, conditions=where.parse(conditions))


@pytest.mark.parametrize(("mode", "runs"), [("runs", 12), ("windows", 4)])
def test_every_point_is_measured_as_often_as_asked_and_then_no_more(tmp_path, monkeypatch, mode, runs):
    testbed = Testbed(monkeypatch, all_valid)
    path = write(tmp_path, mode=mode, repetitions="2")
    outcome = carry_out(path, tmp_path / "r")
    assert (outcome.status, len(testbed.runs)) == (0, runs)
    assert sorted(one.key for one in sweeps.chosen(outcome.ledger.found)) == sorted(outcome.sweep.planned())
    again = carry_out(path, tmp_path / "r")
    assert (again.status, len(testbed.runs), again.sweep.id) == (0, runs, outcome.sweep.id)
    assert sweeps.missing(again.sweep, sweeps.measured(tmp_path / "r", again.sweep)) == []


def test_new_begins_anew_and_another_definition_is_another_sweep(tmp_path, monkeypatch):
    testbed = Testbed(monkeypatch, all_valid)
    path = write(tmp_path)
    first = carry_out(path, tmp_path / "r")
    second = carry_out(path, tmp_path / "r", new=True)
    other = carry_out(write(tmp_path, repetitions="2"), tmp_path / "r")
    assert len({first.sweep.id, second.sweep.id, other.sweep.id}) == 3
    assert len(testbed.runs) == 6 + 6 + 12
    assert sweeps.find(tmp_path / "r", "s").id == other.sweep.id
    assert sweeps.find(tmp_path / "r", first.sweep.id).id == first.sweep.id
    with pytest.raises(StoreError, match="no such sweep"):
        sweeps.find(tmp_path / "r", "s@1999-01-01")


def test_only_points_like_that(tmp_path, monkeypatch):
    testbed = Testbed(monkeypatch, all_valid)
    outcome = carry_out(write(tmp_path), tmp_path / "r", conditions=["load>=100mbit", "model=vgg16"])
    assert (outcome.status, len(testbed.runs)) == (0, 2)
    assert len(sweeps.missing(outcome.sweep, outcome.ledger.found)) == 4
    for wrong, message in (("lod=1", "no axis lod"), ("load=7gbit", "no point matches")):
        with pytest.raises(ConfigError, match=message):
            carry_out(write(tmp_path), tmp_path / "r", conditions=[wrong])


def test_what_never_gets_valid_is_given_up_and_the_rest_goes_on(tmp_path, monkeypatch):
    def fate(results, about, names):
        (name,) = names
        high = about["points"][name]["values"]["traffic.0.iperf.load"] == "200mbit"
        return ended(leave(results, about, windows=[window(name, valid=not high)]))

    testbed = Testbed(monkeypatch, fate)
    path = write(tmp_path, attempts="3")
    outcome = carry_out(path, tmp_path / "r")
    assert outcome.status == Exit.INCONCLUSIVE
    assert len(testbed.runs) == 4 + 2 * 3
    assert len(outcome.ledger.done) == 4
    assert carry_out(path, tmp_path / "r").status == Exit.INCONCLUSIVE
    assert len(testbed.runs) == 10, "and is not tried again by whoever comes next"


def test_a_load_that_cannot_be_had_costs_its_own_window_alone(tmp_path, monkeypatch):
    def fate(results, about, names):
        high = {
            n: "preflight: 150mbit of 200mbit"
            for n in names
            if about["points"][n]["values"]["traffic.0.iperf.load"] == "200mbit"
        }
        return ended(leave(results, about, windows=[window(n) for n in names if n not in high], unreached=high))

    testbed = Testbed(monkeypatch, fate)
    outcome = carry_out(write(tmp_path, mode="windows"), tmp_path / "r")
    assert outcome.status == Exit.INCONCLUSIVE
    assert [len(run) for run in testbed.runs] == [3, 3, 1, 1]
    assert {outcome.ledger.why[key] for key in outcome.keys if key not in outcome.ledger.done} == {
        "preflight: 150mbit of 200mbit"
    }


def test_a_run_that_fails_in_a_window_costs_that_one_a_try_and_keeps_what_was_measured(tmp_path, monkeypatch):
    fates = iter([1, 3, 3])

    def fate(results, about, names):
        number = next(fates)
        done = [window(name) for name in names[:number]]
        if len(done) == len(names):
            return ended(leave(results, about, windows=done))
        return ended(
            leave(results, about, windows=done, outcome="failed", error="it broke", stage="window"),
            LaunchError("it broke"),
        )

    testbed = Testbed(monkeypatch, fate)
    outcome = carry_out(write(tmp_path, mode="windows"), tmp_path / "r")
    assert outcome.status == 0
    assert sorted(len(run) for run in testbed.runs) == [2, 3, 3]
    assert sum(outcome.ledger.tries.values()) == 1


def test_a_host_that_keeps_failing_is_left_out_with_what_needs_it(tmp_path, monkeypatch):
    def fate(results, about, names):
        (name,) = names
        if "h3" not in about["points"][name]["values"]["workload.ddp.hosts"]:
            return all_valid(results, about, names)
        path = leave(results, about, outcome="failed", error="h3: no route", stage="open", failed_node="h3")
        return ended(path, LaunchError("no route", node="h3"))

    text = """\
name: s
axes:
  workload.ddp.hosts: [[h1, h2], [h2, h3], [h1, h3], [h3, h4], [h1, h4]]
  seed: [1, 2]
order: fixed
attempts: 5
experiment:
  testbed: {local: {hosts: 4, link: 1gbit}}
  workload: {ddp: {model: resnet50, hosts: [h1, h2]}}
  measure: {iterations: 10}
"""
    testbed = Testbed(monkeypatch, fate)
    outcome = carry_out(write(tmp_path, text), tmp_path / "r")
    assert outcome.status == Exit.FAILED
    assert outcome.ledger.quarantined == {"h3": "no route"}
    assert len(outcome.ledger.done) == 4
    assert len(testbed.runs) == 4 + 2
    assert carry_out(write(tmp_path, text), tmp_path / "r").status == Exit.FAILED
    assert len(testbed.runs) == 4 + 2 + 2, "whoever comes next may have mended it, and finds out"


def test_an_interrupt_ends_the_sweep_and_counts_as_no_try(tmp_path, monkeypatch):
    def fate(results, about, names):
        return ended(leave(results, about, outcome="interrupted", error="stopped"), Interrupted("stopped"))

    testbed = Testbed(monkeypatch, fate)
    for _ in range(3):
        outcome = carry_out(write(tmp_path, attempts="1"), tmp_path / "r")
        assert (outcome.status, sum(outcome.ledger.tries.values())) == (130, 0)
    assert len(testbed.runs) == 3


class Killed(BaseException):
    """Stands for kill -9."""


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("mode", ["runs", "windows"])
def test_whatever_cuts_it_off_it_ends_with_the_same_points(tmp_path, monkeypatch, mode, seed):
    source = random.Random(seed)  # noqa: S311

    def fate(results, about, names):
        done = [window(name, valid=source.random() < 0.9) for name in names[: source.randint(0, len(names))]]
        what = source.choice(["whole", "whole", "killed", "interrupted", "failed"])
        if what == "whole":
            return ended(leave(results, about, windows=[window(name) for name in names]))
        if what == "killed":
            path = leave(results, about, windows=done, outcome="running", sealed=False)
            gone = replace(rundir.controller(), start=0)
            manifest.save(path / MANIFEST, replace(rundir.opened(path).manifest, controller=gone))
            raise Killed
        path = leave(results, about, windows=done, outcome=what, error=what, stage="window")
        return ended(path, Interrupted(what) if what == "interrupted" else LaunchError(what))

    Testbed(monkeypatch, fate)
    path = write(tmp_path, mode=mode, repetitions="2", attempts="100")
    ids = set()
    for _ in range(400):
        try:
            outcome = carry_out(path, tmp_path / "r")
        except Killed:
            continue
        ids.add(outcome.sweep.id)
        if outcome.status != 130:
            break
    assert outcome.status == 0
    assert len(ids) == 1
    kept = sweeps.chosen(sweeps.measured(tmp_path / "r", outcome.sweep))
    assert sorted(one.key for one in kept) == sorted(outcome.sweep.planned())
    assert not list((tmp_path / "r").glob("*/*.partial"))


def test_a_torn_sweep_file_is_begun_anew(tmp_path, monkeypatch):
    Testbed(monkeypatch, all_valid)
    first = carry_out(write(tmp_path), tmp_path / "r")
    (first.sweep.path / "sweep.json").write_text("{")
    assert carry_out(write(tmp_path), tmp_path / "r").sweep.id != first.sweep.id


def test_loads_are_told_at_full_size_where_they_landed(tmp_path, monkeypatch):
    def fate(results, about, names):
        windows = [window(name, requested=20e6, achieved=0.8) for name in names]
        return ended(leave(results, about, windows=windows))

    Testbed(monkeypatch, fate)
    outcome = carry_out(write(tmp_path), tmp_path / "r")
    (one, *_) = outcome.ledger.found
    assert (one.requested_bps, one.achieved_bps) == (200e6, 160e6)
    nothing = replace(one, window=replace(one.window, loads=()))
    assert (nothing.requested_bps, nothing.achieved_bps) == (0.0, 0.0)


def test_a_check_in_a_fresh_run_is_held_against_the_windows(tmp_path, monkeypatch):
    def fate(results, about, names):
        recheck = about["points"][names[0]]["recheck"]
        return ended(leave(results, about, windows=[window(name, mean_s=0.103 if recheck else 0.1) for name in names]))

    Testbed(monkeypatch, fate)
    path = str(write(tmp_path, mode="windows", recheck="1"))
    status, out, _ = orch("sweep", path, "--results", str(tmp_path / "r"), "--where", "model=vgg16")
    assert status == 0
    (line,) = [line for line in out.splitlines() if line.startswith("check: ")]
    assert line.endswith("model=vgg16: 103.0 ms p50 in a fresh run, +3.0% of 100.0 ms in windows")


def test_the_command_tells_what_is_missing_and_why(tmp_path, monkeypatch):
    def fate(results, about, names):
        (name,) = names
        high = about["points"][name]["values"]["traffic.0.iperf.load"] == "200mbit"
        return ended(leave(results, about, windows=[window(name, valid=not high)]))

    Testbed(monkeypatch, fate)
    status, out, err = orch("sweep", str(write(tmp_path)), "--results", str(tmp_path / "r"), "--where", "model=vgg16")
    assert status == 3
    assert "3 measurements, 0 of them done" in err
    assert "missing: load=200mbit, model=vgg16, repetition 1: tried 2 times: the load is missed" in out
    assert "1/1" in out
    assert "0/1" in out
    plan = orch("plan", str(write(tmp_path)), "--results", str(tmp_path / "r"))[1]
    assert ", if 3 windows take what earlier ones at their points took, and 3 at other points" in plan


def test_a_sweep_keeps_its_salt_and_its_tries_their_flows_while_each_sweep_draws_another(tmp_path, monkeypatch):
    seeds = []

    def fate(results, about, names):
        return ended(leave(results, about, windows=[window(name, valid=len(seeds) > 6) for name in names]))

    testbed = Testbed(monkeypatch, fate)
    carried = testbed.run_planned

    def run_planned(experiment, run, options, attempt):
        seeds.append((next(iter(attempt.sweep.points.values())).point, run.salt, run.seed))
        return carried(experiment, run, options, attempt)

    monkeypatch.setattr(execute, "run_planned", run_planned)
    path = write(tmp_path)
    first = carry_out(path, tmp_path / "r")
    tries = [seeds[:6], seeds[6:]]
    assert sorted(tries[0]) == sorted(tries[1]), "a further try draws what the first one drew"
    assert len({seed for _, _, seed in seeds}) == 6
    assert {salt for _, salt, _ in seeds} == {first.sweep.salt} == {first.sweep.plan.salt}
    again = carry_out(path, tmp_path / "r", new=True)
    assert again.sweep.salt != first.sweep.salt
    assert not {seed for _, _, seed in seeds[12:]} & {seed for _, _, seed in seeds[:12]}
    assert carry_out(path, tmp_path / "r").sweep.id == again.sweep.id


def test_a_given_salt_repeats_a_sweep_and_takes_up_the_sweep_that_has_it(tmp_path, monkeypatch):
    Testbed(monkeypatch, all_valid)
    path = write(tmp_path)
    one, other = (carry_out(path, tmp_path / "r", salt=salt) for salt in "ab")
    assert (one.sweep.salt, other.sweep.salt) == ("a", "b")
    assert carry_out(path, tmp_path / "r", salt="a").sweep.id == one.sweep.id
    assert carry_out(path, tmp_path / "r").sweep.id == other.sweep.id
    repeated = carry_out(path, tmp_path / "r", salt="a", new=True)
    assert repeated.sweep.id != one.sweep.id
    assert repeated.keys == one.keys


def test_a_sweep_that_is_older_than_salts_goes_on_in_its_own_order(tmp_path):
    definition = sweepfile.load(write(tmp_path))
    sweep = run_sweep.begun(definition, tmp_path / "r", salt="a")
    old = replace(sweep, plan=replace(sweep.plan, salt=""))
    assert old.salt == old.id
