"""Random numbers of runs: each day, repetition and point draws its own, whatever its place, and a salt repeats them."""

from __future__ import annotations

import json
from itertools import islice

from cross_traffic.agents import flow_drawing
from orchestrator.core.errors import ConfigError
from orchestrator.experiment import documents, plan, seeds, sweepfile
from orchestrator.experiment.experiment import model
from orchestrator.experiment.validation import validate
from orchestrator.sweep import sweepplan
from tests.helpers.experiments import orch
from tests.helpers.sweep_files import write

ONE = """\
name: e
testbed: {local: {hosts: 3, link: 1gbit, scale: 10}}
workload: {ddp: {model: resnet50, hosts: [h1, h2]}}
measure: {iterations: 10}
repetitions: 2
"""
QUIET = "{websearch: {from: [h1, h2], to: h3, load: 100mbit}}"
BURSTS = "{websearch: {from: h1, to: h3, load: 200mbit, burst: {width: 10ms, period: 100ms}}}"
WINDOWS = {
    "quiet": f"  - {{name: quiet, traffic: [{QUIET}]}}\n",
    "bursts": f"  - {{name: bursts, traffic: [{BURSTS}]}}\n",
}
SWEEP = """\
name: s
axes:
  traffic.0.websearch.load: [100mbit, 200mbit, 300mbit, 400mbit]
experiment:
  testbed: {local: {hosts: 3, link: 1gbit, scale: 10}}
  workload: {ddp: {model: resnet50, hosts: [h1, h2]}}
  traffic:
    - websearch: {from: h1, to: h3, load: 200mbit}
  measure: {warmup: 5, iterations: 10}
"""


def experiment(text):
    return validate(documents.parse(text.encode(), name="e", needs="all"), model())


def flows(run):
    """Return by window, sender and stream the first flows that are sent: their starts and sizes."""
    return {
        (window.name, source.name, launch.node, number): tuple(islice(flow_drawing.drawn(spec), 50))
        for window in run.windows
        for source in window.sources
        for launch in source.launches
        for number, spec in enumerate(specs(launch))
    }


def specs(launch):
    found = [json.loads(content) for content in launch.files.values() if isinstance(content, bytes)]
    return [spec for one in found for spec in one.get("streams", ())]


def of_jobs(run):
    """Return the seeds of the jobs' ranks."""
    return [json.loads(launch.files["config.json"])["seed"] for job in run.jobs for launch in job.launches]


def test_neither_another_day_nor_another_repetition_draws_the_same_flows():
    one = experiment(f"{ONE}traffic: [{QUIET}, {BURSTS}]\n")
    days = [plan.build(one, seeds.drawn()) for _ in range(2)]
    drawn = [flows(run) for day in days for run in day]
    assert len(drawn) == 4
    assert all(len(one) >= 3 for one in drawn)
    every = [schedule for one in drawn for schedule in one.values()]
    own = [len(set(one.values())) for one in drawn]
    assert len(set(every)) == sum(own), "no stream of a run is one of another run"
    assert len({seed for day in days for run in day for seed in of_jobs(run)}) == 4


def test_a_salt_repeats_every_byte_of_a_plan():
    one = experiment(f"{ONE}traffic: [{QUIET}, {BURSTS}]\n")
    salt = seeds.drawn()
    first, again = (json.dumps([plan.plan_data(run) for run in plan.build(one, salt)]) for _ in range(2))
    assert first == again
    assert [flows(run) for run in plan.build(one, salt)] == [flows(run) for run in plan.build(one, salt)]
    assert all(run.salt == salt for run in plan.build(one, salt))


def test_a_windows_flows_do_not_depend_on_its_place():
    there, back = (
        flows(plan.build(experiment(f"{ONE}windows:\n{WINDOWS[one]}{WINDOWS[other]}"), "a")[0])
        for one, other in (("quiet", "bursts"), ("bursts", "quiet"))
    )
    assert there == back
    alone = flows(plan.build(experiment(f"{ONE}windows:\n{WINDOWS['bursts']}"), "a")[0])
    assert alone.items() <= there.items()


def test_what_else_an_experiment_says_changes_no_flows_of_a_salt():
    first, more = (
        plan.build(experiment(f"{ONE}traffic: [{QUIET}]\n{text}"), "a")[0] for text in ("", "collect: [{tcp: {}}]\n")
    )
    assert flows(first) == flows(more)
    assert first.point != more.point
    other = plan.build(experiment(f"{ONE}traffic: [{QUIET}]\nseed: 2\n"), "a")[0]
    assert flows(first) != flows(other)


def by_key(definition, salt, *, keys=None):
    """Return the flows of every measurement of a sweep, without the names of its windows."""
    found = {}
    for batch in sweepplan.batches(definition, keys or sweepplan.in_order(definition, salt)):
        for (window, *place), schedule in flows(batch.planned(salt)).items():
            found[(batch.windows[window], *place)] = schedule
    return found


def test_a_measurement_of_a_sweep_has_its_own_flows_wherever_it_stands(tmp_path):
    together = sweepfile.load(write(tmp_path, SWEEP, mode="windows", repetitions="2", recheck="1"))
    found = by_key(together, "night")
    assert len(found) == 4 * 2 + 1
    assert len(set(found.values())) == len(found), "each point, repetition and check draws for itself"
    assert by_key(together, "night", keys=sweepplan.in_order(together, "night")[::-1]) == found
    left = sweepplan.in_order(together, "night")[5:]  # the sweep is taken up again, with other runs
    assert by_key(together, "night", keys=left).items() <= found.items()
    alone = by_key(sweepfile.load(write(tmp_path, SWEEP, mode="runs", repetitions="2")), "night")
    assert alone.items() <= found.items(), "nor does it matter whether ranks stay up"
    assert not set(by_key(together, "next night").values()) & set(found.values())


def test_points_have_common_random_numbers_where_the_sweep_says_so(tmp_path):
    algorithms = SWEEP.replace(
        "  traffic.0.websearch.load: [100mbit, 200mbit, 300mbit, 400mbit]", "  workload.ddp.bucket: [1mib, 25mib]"
    )
    own, common = (
        sweepfile.load(write(tmp_path, algorithms, repetitions="2", draws=draws)) for draws in ("own", "common")
    )
    assert own.digest != common.digest
    assert own.digest == sweepfile.load(write(tmp_path, algorithms, repetitions="2")).digest
    assert len(set(by_key(own, "a").values())) == 4
    found = by_key(common, "a")
    assert len(set(found.values())) == 2
    for repetition in (1, 2):
        assert len({flown for (key, *_), flown in found.items() if key[1] == repetition}) == 1
    assert common.as_data()["draws"] == "common"


def test_a_plan_is_the_same_each_time_and_tells_its_salt(tmp_path):
    path = tmp_path / "e.yaml"
    path.write_text(f"{ONE}traffic: [{QUIET}]\n")
    first, again, other = (orch("plan", str(path), *more)[1] for more in ((), (), ("--seed", "7")))
    assert first == again != other
    assert "random numbers from the salt plan, which plans have: runs draw their own without `--seed`" in first
    assert "random numbers from the salt 7\n" in other
    for refused in ("a b", "", "-x"):
        status, _, told = orch("plan", str(path), f"--seed={refused}")
        assert status == ConfigError.exit_code
        assert "accepted: 1 to 64 letters" in told
