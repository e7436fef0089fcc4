"""Jobs of one experiment: when their iterations begin, where their ranks run, and whose congestion control is whose."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.core.errors import ConfigError
from orchestrator.experiment import loading, plan
from orchestrator.experiment.pacing import Pace, Start, paces
from orchestrator.experiment.placements import Placement, hosts
from orchestrator.parts.topology import Link, Node, Rail, Topology
from tests.helpers.experiments import orch
from workloads.rank.lifecycle import CONGESTION_CONTROL

BEGIN = """\
name: t
testbed: {local: {hosts: 4, link: 1gbit, scale: 10}}
measure: {iterations: 10, stall_timeout: 20s}
jobs:
"""
FIRST = "  - {name: a, workload: {ddp: {model: resnet50}}, every: 400ms}\n"
SECOND = "  - {name: b, workload: {ddp: {model: resnet50}}, every: 400ms, start: {after: a, by: 100ms}}\n"


def planned(tmp_path, text):
    path = tmp_path / "e.yaml"
    path.write_text(text)
    return plan.build(loading.checked(path, [], local=False).experiment)[0]


def wrong(tmp_path, text):
    with pytest.raises(ConfigError) as caught:
        planned(tmp_path, text)
    return str(caught.value)


def nodes(run):
    return {job.job.name: [rank.node for rank in job.job.ranks] for job in run.jobs}


def test_offsets_after_one_another_add_up_and_periods_hold_them(tmp_path):
    third = "  - {name: c, workload: {ddp: {model: resnet50}}, start: {after: b, by: 50ms}}\n"
    found = {job.job.name: job.pace for job in planned(tmp_path, BEGIN + FIRST + SECOND + third).jobs}
    assert found == {
        "a": Pace(every_s=0.4),
        "b": Pace(begin_s=0.1, every_s=0.4, after="a", by_s=0.1, held=True),
        "c": Pace(begin_s=pytest.approx(0.15), after="b", by_s=0.05),
    }
    assert found["c"].text == "begins 50ms after b, at first: nothing holds it"


@pytest.mark.parametrize(
    ("first", "second", "held"),
    [
        (0.1, 0.1, True),
        (0.1, 0.3, True),
        (0.3, 0.1, False),
        (0.1, 0.101, False),
        (None, 0.1, False),
        (0.1, None, False),
    ],
)
def test_an_offset_is_held_where_each_turn_falls_on_the_same_place_of_the_other_period(first, second, held):
    found = paces([("a", None, first), ("b", Start(after="a", by="50ms"), second)])
    assert found["b"].held is held


def test_time_that_is_dilated_dilates_a_pace():
    found = Pace(begin_s=0.1, every_s=0.4, after="a", by_s=0.1, held=True)
    assert found.dilated(10) == Pace(begin_s=1.0, every_s=4.0, after="a", by_s=1.0, held=True)


def test_a_plan_says_when_iterations_begin(tmp_path):
    (tmp_path / "e.yaml").write_text(BEGIN + FIRST + SECOND)
    status, out, _ = orch("plan", str(tmp_path / "e.yaml"))
    assert status == 0
    assert "  pace: an iteration every 400ms\n" in out
    assert "  pace: begins 100ms after a, an iteration every 400ms\n" in out


COMMAND = "{command: {argv: [sh, -c, 'true'], iterations: {pattern: 'took (?P<seconds>.*)'}}}"
MISTAKES = {
    "the first job": (
        FIRST.replace("every: 400ms", "start: {after: b}") + SECOND,
        "jobs.0.start.after: 'b' is no job before a",
    ),
    "itself": (
        FIRST + SECOND.replace("after: a", "after: b"),
        "jobs.1.start.after: 'b' is no job before b; accepted: one of a",
    ),
    "a period of nothing": (FIRST.replace("400ms", "0s"), "jobs.0.every"),
    "a stall": (FIRST.replace("400ms", "20s"), "jobs.0: 20s without an iteration are a stall"),
    "a late start": (FIRST + SECOND.replace("100ms", "30s"), "jobs.1: 30s without an iteration are a stall"),
    "a command's pace": (
        f"  - {{name: a, workload: {COMMAND}, every: 1s}}\n",
        "jobs.0.every: the command begins iterations by",
    ),
    "two places": (
        "  - {name: a, workload: {ddp: {model: resnet50, hosts: [h1, h2]}}, placement: packed}\n",
        "jobs.0.placement: stands beside hosts of the workload",
    ),
    "no room": (
        "  - {name: a, workload: {ddp: {model: resnet50}}, placement: {order: packed, ranks: 5}}\n",
        "jobs.0.placement.ranks: 5 ranks do not fit on hosts that take 4; accepted: at most 4",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_told_where_they_stand(tmp_path, mistake):
    text, message = MISTAKES[mistake]
    assert message in wrong(tmp_path, BEGIN + text)


def test_a_command_may_begin_after_another_job(tmp_path):
    run = planned(tmp_path, BEGIN + FIRST + f"  - {{name: b, workload: {COMMAND}, start: {{after: a, by: 2s}}}}\n")
    assert run.jobs[1].pace == Pace(begin_s=2.0, after="a", by_s=2.0)


# Placement


def placed(order, ranks):
    return f"{{model: resnet50}}}}, placement: {{order: {order}, ranks: {ranks}}}}}\n"


def test_jobs_are_packed_side_by_side_where_there_is_room(tmp_path):
    text = "".join(f"  - {{name: {name}, workload: {{ddp: {placed('packed', 2)}" for name in "abc")
    assert nodes(planned(tmp_path, BEGIN + text)) == {"a": ["h1", "h2"], "b": ["h3", "h4"], "c": ["h1", "h2"]}


def test_a_random_placement_is_the_seeds(tmp_path):
    text = BEGIN + f"  - {{name: a, workload: {{ddp: {placed('random', 3)}"
    found = [nodes(planned(tmp_path, text + f"seed: {seed}\n"))["a"] for seed in (1, 1, 2, 3, 4)]
    assert found[0] == found[1]
    assert len(set(map(tuple, found))) > 1
    assert all(len(set(one)) == 3 for one in found)


def test_a_placement_is_recorded_as_the_hosts_that_it_became(tmp_path):
    (tmp_path / "e.yaml").write_text(BEGIN + f"  - {{name: a, workload: {{ddp: {placed('packed', 2)}")
    job = loading.checked(tmp_path / "e.yaml", [], local=False).experiment.jobs[0]
    assert (job.placement, job.workload.config.hosts) == (None, ["h1", "h2"])


def fabric(*leaves, slots=1):
    """Hosts below leaf switches, as many as each number says."""
    names = iter(range(1, 1 + sum(leaves)))
    pairs = [(f"h{next(names)}", f"leaf{leaf}") for leaf, count in enumerate(leaves, 1) for _ in range(count)]
    return Topology(
        kind="local",
        nodes=tuple(Node(name=host, rails=(Rail(device="eth0"),), slots=slots) for host, _ in pairs),
        links=tuple(Link(host=host, device="eth0", switch=leaf, rate=1e9) for host, leaf in pairs),
    )


@pytest.mark.parametrize(
    ("order", "ranks", "taken", "expected"),
    [
        ("packed", 2, (), ["h1", "h2"]),
        ("spread", 2, (), ["h1", "h3"]),
        ("spread", 4, (), ["h1", "h3", "h2", "h4"]),
        ("packed", 2, ("h1",), ["h2", "h3"]),
        ("spread", 2, ("h1", "h3"), ["h2", "h4"]),
        ("packed", 4, ("h2",), ["h1", "h3", "h4", "h2"]),
    ],
)
def test_placements_go_by_leaves(order, ranks, taken, expected):
    assert hosts(Placement(order=order, ranks=ranks), fabric(2, 2), taken, 0) == expected


def test_of_one_switch_hosts_are_filled_one_by_one_or_in_turn():
    one = fabric(2, slots=2)
    assert hosts(Placement(order="packed", ranks=3), one, (), 0) == ["h1", "h1", "h2"]
    assert hosts(Placement(order="spread", ranks=3), one, (), 0) == ["h1", "h2", "h1"]
    leaves = replace(fabric(2, 2), nodes=fabric(2, 2, slots=2).nodes)
    assert hosts(Placement(order="spread", ranks=4), leaves, (), 0) == ["h1", "h3", "h2", "h4"]


# Congestion control by job


def control(text, jobs=FIRST + SECOND):
    return BEGIN.replace("jobs:", f"conditions:\n  - congestion-control: {text}\njobs:") + jobs


def test_ranks_of_a_job_with_congestion_control_of_its_own_are_told_and_no_route_is_changed(tmp_path):
    run = planned(tmp_path, control("{algorithm: bbr, job: b}"))
    told = {job.job.name: {launch.env.get(CONGESTION_CONTROL) for launch in job.ranks()} for job in run.jobs}
    assert told == {"a": {None}, "b": {"bbr"}}
    assert run.changes == ()


@pytest.mark.parametrize(
    ("text", "jobs", "message"),
    [
        ("{algorithm: bbr, job: x}", FIRST, "job: no job is called x; accepted: one of a"),
        ("{algorithm: bbr, job: a, hosts: [h1]}", FIRST, "hosts: stand beside job"),
        ("{algorithm: dctcp, job: a}", FIRST, "dctcp needs ECN from the handshake on"),
        (
            "{algorithm: bbr, job: a}\n  - congestion-control: {algorithm: reno, job: a}",
            FIRST,
            "an earlier condition sets",
        ),
        (
            "{algorithm: bbr, job: a}",
            f"  - {{name: a, workload: {COMMAND}}}\n",
            "the connections of a are those of the command, not of its rank",
        ),
    ],
)
def test_congestion_control_that_cannot_be_a_jobs_is_refused(tmp_path, text, jobs, message):
    assert message in wrong(tmp_path, control(text, jobs))
