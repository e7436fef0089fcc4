"""What is shown of a run under way: curves, loads, who waits for whom, gates as they stand, and what is new."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.store.live import Live, LiveHost, LiveJob, LiveLoad, LiveRank, LiveWindow
from orchestrator.store.manifests.summaries import Point
from orchestrator.store.sweeps import MeasuredWindow, Plan, PlannedPoint, Sweep
from orchestrator.watching import view
from tests.helpers import manifests
from tests.helpers.sweep_files import window

RANKS = [{"rank": 0, "node": "h1"}, {"rank": 1, "node": "h2"}, {"rank": 2, "node": "h4"}]
MANIFEST = manifests.made(outcome="running", scale=10, jobs=[{"name": "a", "workload": "ddp", "ranks": RANKS}])
SECOND = 10**9


def ranks(*waits, seconds=0.1):
    return tuple(LiveRank(rank=at, last=19, seconds=seconds, wait_s=wait) for at, wait in enumerate(waits))


def going(*, measured=20, seconds=(0.1,) * 20, waits=(0.03, 0.001, 0.03), mean=5e9, end="h3", **more):
    state = Live(
        label="run 1 of 3",
        phase="window",
        phase_began_ns=SECOND,
        window=LiveWindow(name="w1", number=1, of=2, wanted=40, left_s=3.2),
        jobs=(LiveJob(name="a", seconds=seconds, measured=measured, heard_ns=7 * SECOND, ranks=ranks(*waits)),),
        loads=(LiveLoad(end=end, requested_bps=5e9, received_bps=4e9, mean_bps=mean),),
    )
    return replace(state, **more)


def shown(live, now_ns=8 * SECOND):
    return view.of_run(MANIFEST, live, now_ns)


def marks(live):
    return {gate.name: gate.mark for gate in view.gates(MANIFEST, live)}


def test_how_far_a_window_is():
    found = shown(going())
    assert (found.phase, found.progress, found.elapsed_s) == (
        "window w1 (1 of 2)",
        "20 of 40 iterations, about 3s left",
        7,
    )
    assert found.share == 0.5
    assert found.curves[0].values == (0.1,) * 20
    assert shown(going(phase="fetch")).progress == ""


def test_a_run_whose_controller_says_nothing_has_the_stage_of_its_manifest():
    assert view.of_run(replace(MANIFEST, stage="ranks"), None, 0).phase == "ranks"


@pytest.mark.parametrize(
    ("waits", "said"),
    [
        ((0.03, 0.001, 0.03), ("a: 2 ranks wait for rank 1 on h2, 29 ms of 100 ms an iteration",)),
        ((0.03, 0.029), ()),
        ((0.001, 0.06), ("a: rank 1 waits for rank 0 on h1, 59 ms of 100 ms an iteration",)),
        ((None, None, None), ()),
    ],
)
def test_who_waits_for_whom(waits, said):
    assert shown(going(waits=waits)).waits == said


def test_a_job_that_stalls_is_told_where_it_is_to_iterate():
    late = 7 * SECOND + 4 * SECOND
    assert shown(going(), late).waits == ("a: no iteration has ended, for 4 s now",)
    slow = going(seconds=(1.0,) * 5)
    assert "no iteration" not in shown(slow, late).waits[0]
    assert shown(going(phase="fetch"), late).waits == ()


def test_of_many_ranks_those_are_shown_that_others_wait_for():
    waits = [0.03] * 100
    waits[77] = 0.0
    (table,) = [one for one in shown(going(waits=waits, loads=())).tables if one.title == "Ranks"]
    assert len(table.rows) == view.MOST_ROWS
    assert any(row[0].startswith("77 ") for row in table.rows)


def test_loads_and_hosts_are_told_at_full_size():
    hosts = (LiveHost(node="h1", received_bps=1e9, sent_bps=2e9, dropped=3, retransmits=4, queue_bytes=1500, busy=0.5),)
    tables = {one.title: one.rows for one in shown(going(hosts=hosts)).tables}
    assert tables["Loads"] == (("h3", "5gbit", "4gbit", "5gbit"),)
    assert tables["Hosts"] == (("h1", "1gbit", "2gbit", "1.5 kB", "3", "4", "50%"),)
    assert "Hosts" not in {one.title for one in shown(going(hosts=hosts, phase="fetch")).tables}


def test_gates_that_hold():
    assert marks(going()) == {"iterations": "ok", "drift": "ok", "load": "ok"}


def test_what_may_yet_come_has_not_failed():
    found = marks(going(measured=5))
    assert found["iterations"] == "..."
    assert found["drift"] == "?"


def test_a_drift_and_a_load_that_is_missed_are_told_while_they_form():
    rising = tuple(0.1 + 0.002 * number for number in range(20))
    found = {gate.name: gate for gate in view.gates(MANIFEST, going(seconds=rising, mean=3e9))}
    assert {name: gate.mark for name, gate in found.items()} == {"iterations": "ok", "drift": "FAIL", "load": "FAIL"}
    assert "to h3, by its counters so far: 3gbit of 5gbit arrived (-40.0%)" in found["load"].text


def test_warm_up_does_not_count_for_the_drift():
    slow_first = (0.3,) * 10 + (0.1,) * 20
    assert marks(going(seconds=slow_first))["drift"] == "ok"


def test_a_load_where_training_arrives_too_is_not_judged():
    assert "load" not in marks(going(end="h2"))
    assert "load" not in marks(going(end="h2/1"))


def test_gates_are_judged_in_windows_alone():
    assert marks(going(phase="warm-up")) == {}


@pytest.mark.parametrize(
    ("values", "bars"),
    [((), ""), ((0.1, 0.1, 0.1), "▅▅▅"), ((1.0, 2.0, 3.0), "▁▅█"), ((9.0, 1.0, 3.0), "▁█"), ((1.0, 1.01), "▄▅")],
)
def test_a_sparkline_shows_the_last_values_and_no_noise(values, bars):
    width = 2 if values[:1] == (9.0,) else 80
    assert view.sparkline(values, width) == bars


def test_lines_tell_what_is_new_and_nothing_twice():
    first = shown(going(measured=5))
    assert view.changes(None, first) == [
        "e: r1 run 1 of 3",
        "  window w1 (1 of 2)",
        "    5 of 40 iterations, about 3s left; a 100 ms the last, 100 ms the median, 100 ms the slowest of 20",
        "    a: 2 ranks wait for rank 1 on h2, 29 ms of 100 ms an iteration",
        "    gate iterations: ...: job a: 5 iterations, fewer than the 20 needed",
        "    gate drift: ?: job a: too few iterations to tell a drift",
        "    gate load: ok: "
        "cross traffic from all senders to h3, by its counters so far: 5gbit of 5gbit arrived (+0.0%)",
    ]
    assert view.changes(first, first) == []
    later = shown(going(measured=6, waits=(0.04, 0.001, 0.04), failures=("h1: collector.nic failed",)))
    assert view.changes(first, later) == [
        "    6 of 40 iterations, about 3s left; a 100 ms the last, 100 ms the median, 100 ms the slowest of 20",
        "    h1: collector.nic failed",
    ]


def test_a_verdict_says_why():
    good = view.of_sealed(replace(MANIFEST, valid=True), "completed", "/r/e/r1")
    assert good.verdict == "r1: valid (/r/e/r1)"
    bad = view.of_sealed(replace(MANIFEST, error="h1: gone\n  more", reasons=("it failed",)), "failed", "/r/e/r1")
    assert bad.verdict == "r1: failed (None): h1: gone; it failed (/r/e/r1)"


def test_a_sweep_has_a_row_for_each_point_that_was_tried_and_its_course():
    values = [{"traffic.0.iperf.load": load} for load in ("1gbit", "2gbit", "3gbit")]
    points = tuple(PlannedPoint(point=f"p{number}", values=value) for number, value in enumerate(values))
    plan = Plan(id="s1", name="s", began_ns=0, definition="d", axes=("traffic.0.iperf.load",), points=points)
    found = [
        MeasuredWindow(
            path=Path("x"),
            manifest=MANIFEST,
            window=manifests.window(**window("w1", mean_s=seconds, valid=valid)),
            measurement=Point(point=point, values={}, repetition=1, recheck=False),
        )
        for point, seconds, valid in (("p0", 0.1, True), ("p1", 0.2, True), ("p1", 0.9, False))
    ]
    course, table = view.of_sweep(Sweep(Path("y"), plan), found)
    assert course.values == (0.1, 0.2)
    assert table.title == "Sweep s: 2 measured of 3 planned"
    assert table.rows == (
        ("load=1gbit", "100mbit", "100.0 ms", "100.0 ms", "1 of 1"),
        ("load=2gbit", "100mbit", "200.0 ms", "200.0 ms", "1 of 2"),
    )
    whole = view.with_sweep(shown(going()), (course, table))
    assert (whole.course, whole.tables[-1], whole.ended) == ((course,), table, False)
