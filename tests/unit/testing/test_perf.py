"""The collector `perf`: what it reads of perf's output, odd and cut short, and what it starts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.parts.collectors import perf
from orchestrator.parts.launch import Launch
from orchestrator.testing import TOPOLOGIES
from orchestrator.testing.case import output
from tests.helpers.experiments import GOOD, orch

DATA = Path(__file__).parents[2] / "data/perf"  # of a virtual machine that counts no cycles
TOPOLOGY = TOPOLOGIES["local"]
# As perf 6.1 prints it where there is a PMU, the rank asleep for an interval, and killed in the last one.
COUNTED = """\
1000,     0.100100000,50.5,msec,task-clock,50500000,100.00,0.505,CPUs utilized
1000,     0.100100000,1000,,cycles,50500000,100.00,,
1000,     0.100100000,7,,context-switches,50500000,100.00,,
2000,     0.200100000,<not counted>,msec,task-clock,0,100.00,,
2000,     0.200100000,<not counted>,,cycles,0,100.00,,
2000,     0.200100000,0,,context-switches,0,100.00,,
3000,     0.250100000,10,msec,task-clock,50500000,100.00,0.505,CPUs utilized
3000,     0.250100000,500,,cycles,50500000,100.00,,
3000,     0.250100000,1,,context-swi"""


def read(folder, **files):
    for name, text in files.items():
        (folder / f"{name}.csv").write_text(text)
    found = output(folder)
    columns = perf.read(found).get("counters", {"port": [], "counter": [], "time_ns": [], "value": []})
    rows: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for port, counter, instant, value in zip(
        *(columns[name] for name in ("port", "counter", "time_ns", "value")), strict=True
    ):
        rows.setdefault((port, counter), []).append((int(instant), float(value)))
    return rows, found


def test_counters_of_each_rank_add_up(tmp_path):
    rows, found = read(tmp_path, **{"training-rank0": COUNTED, "training-rank1": COUNTED.replace(",7,", ",9,")})
    assert rows["training-rank0", "perf.cycles"] == [(6000, 1000), (7000, 1000), (8000, 1500)]
    seconds = [value for _, value in rows["training-rank0", "perf.task-clock_s"]]
    assert seconds == pytest.approx([0.0505, 0.0505, 0.0605])
    assert rows["training-rank1", "perf.context-switches"] == [(6000, 9), (7000, 9)]
    assert len(rows) == 6
    assert (found.unread.sentences(), list(found.unread.rows()["count"])) == ([], [])


def test_what_a_machine_does_not_count_is_left_out_and_told_once(tmp_path):
    rows, found = read(tmp_path, **{path.stem: path.read_text() for path in DATA.glob("*.csv")})
    assert {counter for _, counter in rows} == {"perf.task-clock_s", "perf.context-switches"}
    assert {port for port, _ in rows} == {"training-rank0", "training-rank1"}
    assert found.unread.sentences() == ["this machine does not count cache-misses, cycles, instructions"]


def test_without_rights_there_are_no_context_switches_and_that_is_told(tmp_path):
    text = COUNTED.replace("task-clock", "task-clock:u").replace("cycles", "cycles:u")
    rows, found = read(tmp_path, r=text.replace("context-switches", "context-switches:u"))
    assert set(rows) == {("r", "perf.task-clock_s"), ("r", "perf.cycles")}
    (note,) = found.unread.sentences()
    assert "user space alone" in note
    assert "kernel.perf_event_paranoid" in note


def test_processors_with_cores_of_two_kinds_count_together(tmp_path):
    text = "1,  0.1,5,,cpu_core/cycles/,1,100.00,,\n2,  0.1,3,,cpu_atom/cycles/u,1,100.00,,\n"
    assert read(tmp_path, r=text)[0] == {("r", "perf.cycles"): [(5001, 5), (5002, 8)]}


@pytest.mark.parametrize(
    "line",
    [
        "nonsense", "x,  0.1,7,,cycles,1,100.00,,", "5,  0.1,-7,,cycles,1,1", "5,  0.1,1e9,,cycles,1,1",
        "5,  0.1,7,,no-such-event,1,1", "9" * 40 + ",  0.1,7,,cycles,1,1", "5,\ufffd\0", "5,  0.1,7.7.7,,cycles,1,1",
    ],
)  # fmt: skip
def test_an_odd_line_costs_itself_and_is_counted(line, tmp_path):
    rows, found = read(tmp_path, r=f"{COUNTED}\n{line}\n", s=COUNTED)
    assert rows["r", "perf.cycles"] == rows["s", "perf.cycles"] == [(6000, 1000), (7000, 1000), (8000, 1500)]
    assert sum(found.unread.rows()["count"]) == 2  # and the one that was cut short


def test_a_comment_of_perf_and_an_empty_line_are_no_oddity(tmp_path):
    rows, found = read(tmp_path, r="5,# started on Thu Nov 26 07:41:05 2026\n5,\n")
    assert (rows, list(found.unread.rows()["count"])) == ({}, [])


def test_what_is_no_file_costs_one_rank(tmp_path):
    (tmp_path / "gone.csv").symlink_to("/etc/passwd")
    rows, found = read(tmp_path, r=COUNTED)
    assert {port for port, _ in rows} == {"r"}
    assert [note for note in found.unread.sentences() if note.startswith("gone.csv: left out")]


def test_one_launch_a_host_watches_its_ranks_and_no_others():
    ranks = [
        Launch(name=f"training-rank{n}", node=node, role="rank", argv=("x",), job="training", rank=n)
        for n, node in enumerate(("h1", "h1", "h2"))
    ]
    here, there = perf.rank_launches(perf.Config(), ranks, TOPOLOGY)
    assert (here.name, there.name, here.privileged) == ("perf.h1", "perf.h2", True)
    assert "training-rank1={pid of training-rank1}" in here.argv
    assert "training-rank2={pid of training-rank2}" in there.argv
    assert perf.rank_launches(perf.Config(hosts=("h2",)), ranks, TOPOLOGY) == [there]


@pytest.mark.parametrize(("every", "fine"), [("10ms", True), ("10s", True), ("9ms", False), ("11s", False)])
def test_intervals_are_those_that_perf_takes(every, fine):
    assert (perf.problems(perf.Config(every=every), TOPOLOGY) == []) == fine


def test_it_is_asked_of_hosts_with_ranks_alone_and_says_how_to_come_by_it(tmp_path):
    path = tmp_path / "e.yaml"
    text = GOOD.replace("[tcpdump, nic]", "[perf]").replace("{model: resnet50}", "{model: resnet50, hosts: [h1, h2]}")
    path.write_text(text)
    status, out, err = orch("plan", str(path), "--json")
    assert status == 0, err
    (run,) = json.loads(out)["runs"]
    needs = [need for need in run["requirements"] if need["needed_by"] == "perf"]
    assert {(need["node"], need["what"]) for need in needs} == {
        (node, what) for node in ("h1", "h2") for what in ("perf", "perf events")
    }
    assert any("linux-perf" in need["remedy"] for need in needs)
    assert any("kernel.perf_event_paranoid=2" in need["remedy"] for need in needs)
    assert {one["name"] for one in run["collectors"] if one["part"] == "collector.perf"} == {"perf.h1", "perf.h2"}


def test_an_output_of_nothing_is_nothing(tmp_path):
    assert perf.read(replace(output(tmp_path), offset_ns=0)) == {}
