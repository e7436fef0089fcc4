from __future__ import annotations

import gzip
import json
import math

import pytest

from orchestrator.cli.main import main
from orchestrator.core.errors import StoreError
from orchestrator.report.run import timeline
from orchestrator.report.run.timeline import Sample, Slice
from orchestrator.report.runs import Run
from tests.helpers import manifests
from tests.helpers.made_traffic import made
from tests.helpers.sealed_run import HOSTS, loose, make_run


def lawful(document):
    """Holds a trace against the rules of the Trace Event Format that a reader relies on; gives names by thread."""
    assert set(document) == {"displayTimeUnit", "otherData", "traceEvents"}
    assert document["displayTimeUnit"] in ("ms", "ns")
    processes, threads, ends = {}, {}, {}
    last = -math.inf
    for event in document["traceEvents"]:
        assert event["ph"] in "MXC"
        assert isinstance(event["pid"], int)
        assert isinstance(event["name"], str)
        if event["ph"] == "M":
            assert last == -math.inf, "names come first"
            if event["name"] == "process_name":
                processes[event["pid"]] = event["args"]["name"]
            elif event["name"] == "thread_name":
                threads[event["pid"], event["tid"]] = event["args"]["name"]
            continue
        assert event["ts"] >= last
        last = event["ts"]
        assert event["pid"] in processes
        if event["ph"] == "C":
            assert all(isinstance(value, (int, float)) for value in event["args"].values())
            continue
        assert event["dur"] >= 0
        key = event["pid"], event["tid"]
        assert key in threads
        stack = ends.setdefault(key, [])
        while stack and stack[-1] <= event["ts"] + 5e-4:
            stack.pop()
        assert not stack or event["ts"] + event["dur"] <= stack[-1] + 1e-3, "slices of a thread overlap in part"
        stack.append(event["ts"] + event["dur"])
    assert len(set(processes.values())) == len(processes)
    return processes, threads


def read(path):
    with gzip.open(path) as file:
        return json.load(file)


def part(track, start, end, **more):
    return Slice(process="p", track=track, name=f"{start}-{end}", start_ns=start, end_ns=end, **more)


def test_slices_that_overlap_get_lanes_and_parts_stay_inside():
    entries = [
        part("a", 0, 10_000),
        part("a", 5_000, 15_000),
        part("a", 0, 4_000, inside=True),
        part("b", 2_000, 3_000),
        part("a", 10_000, 20_000),
        part("a", 6_000, 7_000),
    ]
    found = timeline.trace_events([*entries, Sample(process="q", counter="c", time_ns=1, value=2.5)], origin_ns=0)
    processes, threads = lawful({"displayTimeUnit": "ms", "otherData": {}, "traceEvents": found})
    assert sorted(processes.values()) == ["p", "q"]
    assert sorted(threads.values()) == ["a", "a (2)", "a (3)", "b"]
    lanes = {event["name"]: event["tid"] for event in found if event["ph"] == "X"}
    assert lanes["0-10000"] == lanes["0-4000"] == lanes["10000-20000"]
    assert len({lanes[name] for name in ("0-10000", "5000-15000", "6000-7000")}) == 3


def test_instants_are_microseconds_to_the_nanosecond():
    (event,) = [
        e
        for e in timeline.trace_events([part("a", 10**18 + 1_234_567, 10**18 + 2_234_568)], origin_ns=10**18)
        if e["ph"] == "X"
    ]
    assert (event["ts"], event["dur"]) == (1234.567, 1000.001)


def test_a_runs_timeline_is_lawful_and_whole(tmp_path):
    folder = make_run(tmp_path, tolerances=loose(), iterations=30)
    begin = json.loads((folder / "manifest.json").read_text())["began_ns"]
    lines = [
        {"event": "phase", "wall_ns": begin, "name": "open"},
        {"event": "start", "wall_ns": begin + 5, "name": "x"},
        {"event": "phase", "wall_ns": begin + 10**9, "name": "window"},
        {"event": "sealed", "wall_ns": begin + 2 * 10**9},
    ]
    (folder / "events.jsonl").write_text("\n".join(map(json.dumps, lines)) + '\n{"event": "ph')
    run = Run(folder)
    run.traffic = made(order=("h1", "h2", "h3", "h4"))
    document = read(timeline.write(run, tmp_path / "t.json.gz"))
    processes, threads = lawful(document)
    assert {"run", "training traffic", "cross traffic", *HOSTS, "switch"} <= set(processes.values())
    assert {"phases", "windows", "training, rank 3", "h4 → h1", "iperf0, h1 → h5"} <= set(threads.values())
    events = document["traceEvents"]
    names = [event["name"] for event in events]
    assert names.count("iteration 7") == names.count("backward") / 35 == 4
    assert names.count("open") == names.count("window") == 1
    bursts = [event for event in events if event["name"] == "burst"]
    assert len(bursts) == 4 * 40
    assert {round(event["dur"]) for event in bursts} == {40_000}
    assert any(event["ph"] == "C" and event["name"] == "p1 qdisc.tbf.backlog_bytes" for event in events)
    rates = [event["args"]["value"] for event in events if event["name"] == "eth0 tx bit/s"]
    assert max(rates) > 1e6
    assert document["otherData"]["zero_ns_since_epoch"] == str(begin)


def test_a_timeline_is_bounded_and_says_what_it_leaves_out(tmp_path, monkeypatch):
    folder = make_run(tmp_path, tolerances=loose(), iterations=30)
    run = Run(folder)
    run.traffic = made()
    monkeypatch.setattr(timeline, "MOST", 60)
    document = read(timeline.write(run, tmp_path / "t.json.gz"))
    lawful(document)
    assert len([event for event in document["traceEvents"] if event["ph"] == "X"]) <= 4 * 60
    left_out = " ".join(document["otherData"]["left_out"])
    for what in ("iterations of ranks", "pauses of training traffic", "samples of counters"):
        assert what in left_out


def test_who_knows_more_of_a_run_adds_to_its_timeline(tmp_path):
    rows = [
        {
            "node": "h1",
            "job": "training",
            "rank": 0,
            "iteration": 3,
            "lane": "communication",
            "what": "bucket 1",
            "span": "all-reduce",
            "peer": -1,
            "bytes": 4096,
            "sequence": 0,
            "start_ns": 10**18,
            "end_ns": 10**18 + 500,
        }
    ]
    run = Run(make_run(tmp_path, tolerances=loose(), iterations=30, skip=("counters", "sockets")))

    def source(_run):
        return timeline.Part(list(timeline.span_entries(rows)))

    document = read(timeline.write(run, tmp_path / "t.json.gz", sources=(timeline.phases, source)))
    _, threads = lawful(document)
    assert "training, rank 0: communication" in threads.values()
    (event,) = [event for event in document["traceEvents"] if event["name"] == "all-reduce bucket 1"]
    assert event["args"] == {"iteration": 3, "bytes": 4096}


def test_a_run_that_failed_early_has_a_timeline(tmp_path):
    run = Run(manifests.left(tmp_path / "x", outcome="failed"))
    lawful(read(timeline.write(run, tmp_path / "t.json.gz")))


def test_a_folder_that_is_not_there_is_told(tmp_path):
    run = Run(make_run(tmp_path, tolerances=loose(), iterations=30, skip=("counters", "sockets", "packets")))
    with pytest.raises(StoreError, match="cannot write the timeline"):
        timeline.write(run, tmp_path / "nowhere" / "t.json.gz")


def test_the_command_writes_beside_the_run(tmp_path, capsys):
    folder = make_run(tmp_path / "some", tolerances=loose(), iterations=30, skip=("counters", "sockets"))
    assert main(["timeline", str(folder), "--results", str(tmp_path)]) == 0
    output = folder.parent / f"timeline-{folder.name}.json.gz"
    assert capsys.readouterr().out.strip() == str(output)
    lawful(read(output))
