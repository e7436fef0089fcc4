from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from orchestrator.parts.rows import TABLES, LaunchOutput
from workloads import horovod

SAMPLE = (
    Path(__file__).parents[2] / "data/horovod"
)  # of a run over three hosts: five of 158 tensors, cut off at its end


def read(folder: Path, *, offset_ns: int = 0):
    output = LaunchOutput(
        folder=folder,
        node="h1",
        launch="training-rank0",
        job="training",
        rank=0,
        window=None,
        source=None,
        offset_ns=offset_ns,
    )
    found = horovod.read(output)
    return {table: {name: list(values) for name, values in rows.items()} for table, rows in found.items()}


def test_tensors_that_were_fused_are_one_span_of_each_kind():
    tables = read(SAMPLE)
    spans = tables["spans"]
    assert set(spans) == set(TABLES["spans"])
    kinds = list(zip(spans["lane"], spans["span"], strict=True))
    assert kinds == 3 * [
        ("negotiation", "all-reduce"),
        ("copy", "copy in"),
        ("communication", "all-reduce"),
        ("copy", "copy out"),
    ]
    assert spans["iteration"] == [number for number in range(3) for _ in range(4)]
    assert spans["sequence"] == 3 * [0, 1, 2, 3]
    assert set(spans["what"]) == {"5 tensors"}
    shapes = [1_280_000, 1000, 1280, 1280, 1280 * 320]
    assert set(spans["bytes"]) == {0, 4 * sum(shapes)}


def test_spans_lie_within_their_iterations_in_the_controllers_time():
    tables, moved = read(SAMPLE), read(SAMPLE, offset_ns=1_000_000)
    spans, iterations = tables["spans"], tables["iterations"]
    for number, begin, end in zip(spans["iteration"], spans["start_ns"], spans["end_ns"], strict=True):
        assert iterations["start_ns"][number] <= begin <= end <= iterations["end_ns"][number]
    assert [at + 1_000_000 for at in spans["start_ns"]] == moved["spans"]["start_ns"]


def test_overlap_is_with_the_passes_of_the_log():
    overlaps, iterations = read(SAMPLE)["overlaps"], read(SAMPLE)["iterations"]
    assert overlaps["iteration"] == [0, 1, 2]
    for place in range(3):
        passes = iterations["forward_s"][place] + iterations["backward_s"][place]
        assert overlaps["compute_s"][place] == pytest.approx(passes, abs=1e-6)
        assert 0 < overlaps["overlap_s"][place] < min(passes, overlaps["communication_s"][place])


def test_without_a_timeline_there_are_no_spans(tmp_path):
    shutil.copy(SAMPLE / "iterations.jsonl", tmp_path)
    tables = read(tmp_path)
    assert len(tables["iterations"]["iteration"]) == 3
    assert tables["spans"]["span"] == tables["overlaps"]["iteration"] == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[",
        "[]",
        "nonsense {",
        "[" * 5000 + "{" * 5000,
        json.dumps([{"args": {"start_time_since_epoch_in_micros": "soon"}}]),
        json.dumps([{"args": {"start_time_since_epoch_in_micros": 2**70}}]),
        json.dumps([{"args": {"start_time_since_epoch_in_micros": 0}}, {"ph": "E", "ts": 1, "pid": 1}]),
        json.dumps([{"args": {"start_time_since_epoch_in_micros": 0}}, {"ph": "B", "ts": "1", "pid": [1]}, 7, None]),
    ],
)
def test_what_is_no_timeline_gives_no_spans(tmp_path, text):
    shutil.copy(SAMPLE / "iterations.jsonl", tmp_path)
    (tmp_path / "timeline.json").write_text(text)
    assert read(tmp_path)["spans"]["span"] == []


def test_a_timeline_that_is_cut_off_counts_up_to_there(tmp_path):
    shutil.copy(SAMPLE / "iterations.jsonl", tmp_path)
    whole = (SAMPLE / "timeline.json").read_text()
    counts = []
    for part in range(0, 11, 2):
        (tmp_path / "timeline.json").write_text(whole[: len(whole) * part // 10])
        counts.append(len(read(tmp_path)["spans"]["span"]))
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (0, 12)
