"""What readers pass over: they go on behind it, count it, and it is a table, a note of the run, and told to gates."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from orchestrator.analysis import reduction
from orchestrator.parts.rows import TABLES, LaunchOutput, Unread
from orchestrator.store.manifests import records
from orchestrator.store.manifests.coding import encoded
from orchestrator.store.manifests.manifest import load
from orchestrator.store.stamps import MANIFEST
from orchestrator.store.tabular import tables
from tests.helpers.sealed_run import make_run
from workloads import collective, moe
from workloads.readers import lines
from workloads.readers.iteration_logs import LOG, read_training

DATA = Path(__file__).parents[2] / "data"
EVENTS = [{"ph": "B", "name": f"event {number}", "args": {"list": [{"a": 1}, {"b": [2]}]}} for number in range(40)]


def output(folder: Path) -> LaunchOutput:
    return LaunchOutput(folder=folder, node="h1", launch="l", job="j", rank=0, window=None, source=None, offset_ns=0)


def told(unread: Unread) -> dict[tuple[str, str], tuple[int, int]]:
    """Number and first line of what was passed over, by file and kind."""
    columns = unread.rows()
    keys = zip(columns["file"], columns["what"], strict=True)
    return dict(zip(keys, zip(columns["count"], columns["line"], strict=True), strict=True))


def objects(text: str, **options: bool) -> tuple[list[object], dict[str, tuple[int, int]]]:
    unread = Unread()
    found = list(lines.objects(text, partial(unread.add, "f"), **options))
    return found, {what: count for (_, what), count in told(unread).items()}


def array(form: str) -> str:
    """The events as several writers lay them out."""
    if form == "one line":
        return json.dumps(EVENTS)
    if form == "indented":
        return json.dumps(EVENTS, indent=2)
    return "[\n" + ",\n".join(map(json.dumps, EVENTS)) + "\n]\n"


@pytest.mark.parametrize("form", ["one line", "indented", "a line each"])
@pytest.mark.parametrize("damage", ["cut", "\n", '"', "}", "{", "]", "\0", "nan", ","])
def test_one_damaged_event_of_an_array_costs_itself_and_at_most_the_next(form: str, damage: str) -> None:
    text = array(form)
    assert objects(text) == (EVENTS, {})
    begin = text.index('"event 7"')
    for at in range(begin - 12, begin + 40, 3):
        broken = text[:at] + text[at + 5 :] if damage == "cut" else text[:at] + damage + text[at:]
        found, passed = objects(broken)
        whole = [one for one in found if one in EVENTS]
        missing = [one for one in EVENTS if one not in whole]
        assert len(missing) <= 3
        assert not missing or passed or any(one not in EVENTS for one in found), "neither passed over nor read"


@pytest.mark.parametrize("form", ["one line", "indented", "a line each"])
def test_what_the_end_cuts_off_is_told_unless_a_file_never_has_its_end(form: str) -> None:
    text = array(form).rstrip()
    for size in range(text.index("[") + 1, len(text), 17):
        found, passed = objects(text[:size])
        assert found == EVENTS[: len(found)] or found[-1] not in EVENTS
        assert sum(count for count, _ in passed.values()) >= 1
        assert objects(text[:size], endless=True)[1].keys() <= {"events"}
    assert objects("nothing") == ([], {"events": (1, 0)})
    assert objects("") == ([], {})


def test_elements_that_are_no_objects_are_told_with_the_line_of_the_first() -> None:
    found, passed = objects('[\n{"a": 1},\n7, null,\n"x", {"a": 2}]')
    assert found == [{"a": 1}, {"a": 2}]
    assert passed == {"events": (3, 3)}


@pytest.mark.parametrize(
    "text",
    [
        "[" + ",{" * 3_000_000,
        "[" + '{"a":[1,' * 1_000_000,
        "[" + '{"a": "\n' * 500_000,
        "[" + '{"a":' * 1_500_000,
        '[{"a": [' + "{}, " * 2_000_000,
        "[\n" + '{"a" 1},\n' * 1_000_000,
        "[" + "[" * 3_000_000 + "{",
        '[{"a": ' + "9" * 5_000_000 + '}, {"b": 1}]',
    ],
    ids=range(8),
)
def test_no_damage_costs_more_than_the_file_is_long(text: str) -> None:
    began = time.process_time()
    objects(text)
    assert time.process_time() - began < 60


def test_lines_of_every_log_of_ours_are_told(tmp_path: Path) -> None:
    for name, read, sample in (
        (LOG, read_training, "ddp"),
        ("trace.jsonl", read_training, "ddp"),
        ("collectives.jsonl", collective.read, "collective"),
        ("routing.jsonl", moe.read, "moe"),
    ):
        for path in (DATA / sample).glob("*.jsonl"):
            (tmp_path / path.name).write_bytes(path.read_bytes())
        whole = (tmp_path / name).read_text().splitlines()
        damaged = [*whole[:1], whole[1][:-9], *whole[1:], "[]", '{"iteration": -1}']
        (tmp_path / name).write_text("\n".join(damaged))
        there = output(tmp_path)
        rows = read(there)
        table = {LOG: "iterations", "trace.jsonl": "overlaps"}.get(name, name.partition(".")[0])
        assert set(rows[table]["iteration"]) == {json.loads(line)["iteration"] for line in whole}
        assert told(there.unread) == {(name, "lines"): (3, 2)}


def test_what_was_not_understood_is_shown_on_one_line_and_bounded() -> None:
    unread = Unread()
    unread.add("f", "lines", line=3, text="\x1b[31mred\n\u202e" + "\ud800" + "x" * 10_000)
    unread.add("f", "lines", line=9, text="another", count=4)
    (text,) = unread.rows()["text"]
    assert text.startswith("[31mred x")
    assert len(text) <= 120
    assert told(unread) == {("f", "lines"): (5, 3)}


def test_a_run_tells_of_it_in_a_table_in_its_notes_and_at_its_gate(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    manifest = load(run / MANIFEST)
    launch = records.Launch(
        name="job-rank0",
        node="h1",
        part="workload.command",
        role="rank",
        argv=(),
        env={"NCCL_NET": "IB"},
        job=manifest.jobs[0].name,
        rank=0,
    )
    (run / MANIFEST).write_bytes(encoded(replace(manifest, launches=(launch,))))
    home = run / "hosts/h1/job-rank0"
    home.mkdir(parents=True)
    (home / LOG).write_text('{"iteration": 0\n')
    way = "Channel 00/0 : 1[0] -> 0[0] [receive] via"
    (home / "nccl.1.log").write_text(f"h:1:2 [0] NCCL INFO {way} NET/IB/0\nh:1:2 [0] NCCL INFO {way} UEC#3\n")
    reduced = reduction.reduce(run)
    assert reduced.notes == (
        'h1: job-rank0: iterations.jsonl: 1 lines passed over, the first in line 1: {"iteration": 0',
        f"h1: job-rank0: nccl.1.log: 1 connections passed over, the first in line 2: {way} UEC#3",
    )
    rows = tables.read(run / "tables", "unread").to_pylist()
    assert [(row["node"], row["launch"], row["file"], row["count"]) for row in rows] == [
        ("h1", "job-rank0", "iterations.jsonl", 1),
        ("h1", "job-rank0", "nccl.1.log", 1),
    ]
    assert set(rows[0]) == {"run", "node", "launch", *TABLES["unread"]}
    (gate,) = (gate for gate in reduced.windows[0].gates if gate.name == "transport")
    assert (gate.passed, gate.required) == (False, True)
    assert "UEC#3" in gate.message
    assert not reduced.windows[0].valid


@pytest.mark.parametrize(
    ("name", "value"),
    [("wait_s", 1e308), ("forward_s", -1e300), ("backward_s", 2**40), ("mono_end_ns", 1), ("mono_end_ns", 0)],
)
def test_times_that_are_none_are_passed_over(tmp_path: Path, name: str, value: float) -> None:
    whole = {
        "iteration": 0,
        "start_ns": 1,
        "end_ns": 2,
        "mono_start_ns": 1,
        "mono_end_ns": 2,
        "samples": 1,
        "forward_s": 0.1,
        "backward_s": -1e-9,
        "wait_s": 0.1,
        "loss": 1.0,
    }
    (tmp_path / LOG).write_text("".join(json.dumps(one) + "\n" for one in (whole, {**whole, name: value}, whole)))
    given = output(tmp_path)
    assert len(read_training(given)["iterations"]["iteration"]) == 2
    assert told(given.unread) == {(LOG, "lines"): (1, 2)}
