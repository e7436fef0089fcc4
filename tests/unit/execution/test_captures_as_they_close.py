"""Captures that are read while they are written: the tables are those of reading them afterwards."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_stayed import ELSEWHERE, LISTENING, same

from orchestrator.analysis import packed_tables
from orchestrator.analysis.capture import captures
from orchestrator.execution.actions import host_reduction
from orchestrator.parts.launch import Flow
from orchestrator.parts.shared import capture_files
from orchestrator.parts.shared.capture_files import CapturePoint
from tests.helpers.experiments import GOOD, changed, orch
from tests.helpers.made_packets import ethernet, ip4, pcap, tcp

LAUNCH = "tcpdump.h1"
EARLY = CapturePoint(launch=LAUNCH, port="eth0", addresses=("10.0.0.1",), offset_ns=700)
WHOLE = dataclasses.replace(EARLY, flows=(Flow(kind="training", name="job", src="10.9.0.1"),))
WITHIN_S = 120.0  # of a machine that compiles the reader first


def written(folder, number, first=0):
    """File `number` of a capture: fifty segments of a flow that goes on from file to file, and of one of its own."""
    frames = []
    for k in range(50):
        stamp = 10**18 + (first or number) * 10**9 + k * 10**6
        frames.append((stamp, ethernet(ip4(tcp(bytes(100), seq=100 * (50 * number + k), sport=9)))))
        frames.append((stamp + 1, ethernet(ip4(tcp(bytes(10), seq=10 * k, sport=100 + number)))))
    name = capture_files.FILE + (str(number) if number else "")
    (folder / f".{name}").write_bytes(pcap(frames))
    (folder / f".{name}").rename(folder / name)


def points(folder, *found):
    folder.mkdir(exist_ok=True)
    (folder / host_reduction.ARCHIVE).write_bytes(host_reduction.packed_code())
    (folder / "points.json").write_text(json.dumps([dataclasses.asdict(point) for point in found]))
    return [sys.executable, "-B", host_reduction.ARCHIVE, "points.json"]


@pytest.fixture
def run(tmp_path):
    (tmp_path / LAUNCH).mkdir()
    (tmp_path / LAUNCH / "stderr").write_text(LISTENING)
    return tmp_path


@contextlib.contextmanager
def reading(run, *found):
    """A reader of captures as they close, once it says that it is there."""
    argv = [*points(run / capture_files.CLOSING, *found), capture_files.AS_THEY_CLOSE]
    process = subprocess.Popen(argv, cwd=run / capture_files.CLOSING, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline().strip() == capture_files.READING
        yield process
    finally:
        process.kill()
        process.communicate()


def reduced(run, *found):
    """What becomes of captures in the end."""
    argv = points(run / capture_files.REDUCED, *found)
    done = subprocess.run(
        argv, cwd=run / capture_files.REDUCED, capture_output=True, text=True, check=False, timeout=WITHIN_S
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(path.name for path in (run / capture_files.REDUCED).iterdir()) == [f"{LAUNCH}.json", f"{LAUNCH}.npz"]
    files = capture_files.in_order(run / LAUNCH)
    assert capture_files.kept(run / LAUNCH) == [capture_files.keep(file) for file in files]
    made = packed_tables.load(run / capture_files.REDUCED / f"{LAUNCH}.npz")
    same(made, captures.reduce(captures.job_of(WHOLE, files)))
    assert set(made.capture_flows["kind"]) == {"training"}
    assert sum(made.capture_flows["packets"]) == 100 * len(files)
    return made


def test_files_are_read_as_they_close_and_the_rest_at_the_end(run):
    written(run / LAUNCH, 0)
    with reading(run, EARLY) as process:
        for number in (1, 2):
            written(run / LAUNCH, number)
            assert process.stdout.readline().split()[1] == f"{LAUNCH}/{capture_files.FILE}{number - 1 or ''}"
        assert os.sched_getscheduler(process.pid) == os.SCHED_IDLE
        reduced(run, WHOLE)
        assert (process.wait(WITHIN_S), process.stdout.read()) == (0, "")
    assert list((run / capture_files.CLOSING).iterdir()) == []


def test_one_that_is_killed_costs_nothing_but_the_time(run):
    written(run / LAUNCH, 0)
    with reading(run, EARLY) as process:
        written(run / LAUNCH, 1)
        process.stdout.readline()
        process.kill()
        process.wait()
    assert (run / capture_files.CLOSING / "code").is_dir()
    reduced(run, WHOLE)
    assert [path.name for path in (run / capture_files.CLOSING).iterdir()] == ["points.json"]


def test_one_that_is_killed_while_it_makes_tables_leaves_that_to_the_other(run):
    for number in range(3):
        written(run / LAUNCH, number)
    with reading(run, EARLY) as process:
        assert process.stdout.readline().endswith(f"{LAUNCH}/{capture_files.FILE}\n")
        process.send_signal(signal.SIGSTOP)
        argv = points(run / capture_files.REDUCED, WHOLE)
        other = subprocess.Popen(argv, cwd=run / capture_files.REDUCED)
        asked = run / capture_files.CLOSING / "all-points.json"
        until = time.monotonic() + WITHIN_S
        while not asked.exists() and time.monotonic() < until:
            time.sleep(0.01)
        assert (asked.exists(), other.poll()) == (True, None)
        process.kill()
        assert other.wait(WITHIN_S) == 0
    reduced(run, WHOLE)


@pytest.mark.parametrize("begun", [dataclasses.replace(EARLY, offset_ns=9), dataclasses.replace(EARLY, segment=500)])
def test_what_was_read_with_other_marks_is_read_again(run, begun):
    written(run / LAUNCH, 0)
    with reading(run, begun) as process:
        written(run / LAUNCH, 1)
        process.stdout.readline()
        reduced(run, WHOLE)


def test_files_whose_clock_was_set_back_are_read_again_in_their_order(run):
    written(run / LAUNCH, 0, first=50)
    with reading(run, EARLY) as process:
        for number in (1, 2):
            written(run / LAUNCH, number)
            process.stdout.readline()
        reduced(run, WHOLE)


def test_a_file_that_is_none_and_one_without_packets_are_said_once(run):
    (run / LAUNCH / capture_files.FILE).write_bytes(b"no capture at all, but long enough for a header")
    with reading(run, EARLY) as process:
        (run / LAUNCH / f"{capture_files.FILE}1").write_bytes(pcap([]))
        written(run / LAUNCH, 2)
        for _ in range(2):
            process.stdout.readline()
        argv = points(run / capture_files.REDUCED, WHOLE)
        assert subprocess.run(argv, cwd=run / capture_files.REDUCED, check=False, timeout=WITHIN_S).returncode == 0
    made = packed_tables.load(run / capture_files.REDUCED / f"{LAUNCH}.npz")
    same(made, captures.reduce(captures.job_of(WHOLE, capture_files.in_order(run / LAUNCH))))
    assert len(made.problems) == 1


def test_a_capture_that_never_began_is_none(run):
    (run / LAUNCH / "stderr").unlink()
    with reading(run, EARLY) as process:
        argv = points(run / capture_files.REDUCED, WHOLE)
        assert subprocess.run(argv, cwd=run / capture_files.REDUCED, check=False, timeout=WITHIN_S).returncode == 0
        assert process.wait(WITHIN_S) == 0
    assert list((run / capture_files.REDUCED).iterdir()) == []


ROTATING = "collect: [{tcpdump: {rotate_every: 1min}}, nic]\n"


@pytest.mark.parametrize(
    ("collect", "keys", "told"),
    [
        (ROTATING, "reduce: as-they-close", "captures that come home are read there; accepted: with `stay: true`"),
        (None, "stay: true, reduce: as-they-close", "captures of one file close when the run ends"),
        (ROTATING, "stay: true, reduce: sometimes", "captures.reduce"),
        (ROTATING, "stay: true, reduce: as-they-close", None),
    ],
)
def test_what_can_be_read_as_it_closes(tmp_path, collect, keys, told):
    text = changed("  local: {hosts: 3, link: 1gbit, scale: 10}\n", ELSEWHERE)
    if collect:
        assert "collect: [tcpdump, nic]\n" in GOOD
        text = text.replace("collect: [tcpdump, nic]\n", collect)
    Path(tmp_path / "e.yaml").write_text(text + f"captures: {{{keys}}}\n")
    status, _, err = orch("plan", str(tmp_path / "e.yaml"))
    assert status == (2 if told else 0), err
    assert (told or "") in err
