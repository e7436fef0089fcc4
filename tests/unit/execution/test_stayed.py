"""Captures that stay on hosts: what hosts say of them, and what becomes of nonsense."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

from orchestrator.agents.agent.files import RunFile
from orchestrator.agents.agent.folders import Folder
from orchestrator.analysis import on_host, packed_tables
from orchestrator.analysis.capture import captures
from orchestrator.core.errors import CaptureError, StoreError
from orchestrator.execution.actions import host_reduction
from orchestrator.hosts import dropping
from orchestrator.parts.shared import capture_files
from orchestrator.store import retention
from orchestrator.store.manifests import stayed
from orchestrator.store.manifests.records import Stayed
from orchestrator.store.rundir import Entry
from tests.helpers import manifests
from tests.helpers.experiments import GOOD, changed, orch
from tests.helpers.made_packets import ethernet, ip4, pcap, tcp

LISTENING = "tcpdump: listening on eth0, link-type EN10MB (Ethernet), snapshot length 96 bytes\n"
STAYED = Stayed(path="hosts/h1/tcpdump.h1/capture.pcap", bytes=2_000_000, sha256="a" * 64, node="h1", folder="/w/r.h1")


def captured(run, launch="tcpdump.h1"):
    """A folder of a launch with a capture of two flows, the second in a file that was rotated."""
    folder = run / launch
    folder.mkdir(parents=True)
    (folder / "stderr").write_text(LISTENING)
    for number, name in enumerate(("capture.pcap", "capture.pcap1")):
        frames = [
            (10**18 + number * 10**9 + k * 10**6, ethernet(ip4(tcp(bytes(100), seq=100 * k, sport=9 + number))))
            for k in range(50)
        ]
        (folder / name).write_bytes(pcap(frames))
    return folder


def points(run, *launches):
    file = run / "points.json"
    told = [capture_files.CapturePoint(launch=launch, port="eth0", addresses=("10.0.0.1",)) for launch in launches]
    file.write_text(json.dumps([dataclasses.asdict(point) for point in told]))
    return file


def same(one, other):
    for field in dataclasses.fields(one):
        mine, theirs = getattr(one, field.name), getattr(other, field.name)
        for column in mine if isinstance(mine, dict) else ():
            assert list(mine[column]) == list(theirs[column]), (field.name, column)
    assert (one.sightings.tolist(), one.problems) == (other.sightings.tolist(), other.problems)


def test_what_a_host_makes_of_a_capture_is_what_is_made_of_it_at_home(tmp_path):
    folder = captured(tmp_path)
    on_host.reduce_all(tmp_path, points(tmp_path, "tcpdump.h1", "tcpdump.that-never-began"))
    job = captures.Job(files=tuple(capture_files.in_order(folder)), port="eth0", addresses=("10.0.0.1",))
    same(packed_tables.load(tmp_path / "captures/tcpdump.h1.npz"), captures.reduce(job))
    kept = capture_files.kept(folder)
    assert [(one.name, one.bytes) for one in kept] == [
        (name, (folder / name).stat().st_size) for name in ("capture.pcap", "capture.pcap1")
    ]
    written = (tmp_path / "captures/tcpdump.h1.npz").stat().st_mtime_ns
    on_host.reduce_all(tmp_path, points(tmp_path, "tcpdump.h1"))  # as after a restart
    assert (tmp_path / "captures/tcpdump.h1.npz").stat().st_mtime_ns == written


def with_array(path, name, array):
    with np.load(path) as found:
        arrays = {key: found[key] for key in found.files if key.rpartition(".")[0] != name.rpartition(".")[0]}
    np.savez_compressed(path, **arrays, **({} if array is None else {name: array}))


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("capture_flows.packets.numbers", None),
        ("capture_flows.packets.numbers", np.array([1.5, 2.5])),
        ("capture_flows.packets.numbers", np.array([1], np.int64)),
        ("capture_flows.src.places", np.array([7, 8], np.int8)),
        ("flow_packets.flow.numbers", np.full(100, 9, np.int8)),
        ("sightings", np.zeros((3, 1), np.int64)),
        ("problems", np.array([b"x"], object)),
    ],
)
def test_tables_that_no_capture_has_are_refused(tmp_path, name, array):
    captured(tmp_path)
    on_host.reduce_all(tmp_path, points(tmp_path, "tcpdump.h1"))
    path = tmp_path / "captures/tcpdump.h1.npz"
    if "." not in name:
        with np.load(path) as found:
            arrays = {key: found[key] for key in found.files if key != name}
        np.savez_compressed(path, **arrays, **{name: array})
    else:
        with_array(path, name, array)
    with pytest.raises(CaptureError, match="tables that the host made cannot be read"):
        packed_tables.load(path)


@pytest.mark.parametrize("member", [b"no array", b"\x93NUMPY\x01\x00\x0b\x00{'descr': (", None])
def test_arrays_that_nobody_can_read_are_refused(tmp_path, member):
    """numpy and zipfile raise whatever they like: AttributeError, TokenError, RuntimeError of what is encrypted."""
    path = tmp_path / "h1.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("sightings.npy", member or b"encrypted")
    if member is None:
        data = bytearray(path.read_bytes())
        data[6] |= 1  # the flag of encryption in the local header, and in the directory
        data[data.index(b"PK\x01\x02") + 8] |= 1
        path.write_bytes(data)
    with pytest.raises(CaptureError, match="tables that the host made cannot be read"):
        packed_tables.load(path)


def test_a_file_that_holds_no_tables_is_refused(tmp_path):
    (tmp_path / "x.npz").write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(CaptureError, match="cannot be read"):
        packed_tables.load(tmp_path / "x.npz")


@pytest.mark.parametrize(
    "told",
    [
        "[",
        "{}",
        '[{"name": "capture.pcap"}]',
        '[{"name": "../x", "bytes": 1, "sha256": "' + "a" * 64 + '"}]',
        '[{"name": "capture.pcap", "bytes": -1, "sha256": "' + "a" * 64 + '"}]',
    ],
)
def test_a_list_of_files_that_is_none_is_refused(tmp_path, told):
    folder = captured(tmp_path)
    (tmp_path / "captures").mkdir()
    (tmp_path / "captures/tcpdump.h1.json").write_text(told)
    if told == "{}":
        assert capture_files.kept(folder) == []
        return
    with pytest.raises(StoreError, match="no list of files"):
        capture_files.kept(folder)


@pytest.mark.parametrize(
    ("path", "launch"),
    [
        ("tcpdump.h1/capture.pcap", "tcpdump.h1"),
        ("tcpdump.h1/capture.pcap12", "tcpdump.h1"),
        ("tcpdump.h1/stderr", None),
        ("tcpdump.h2/capture.pcap", None),
        ("tcpdump.h1/x/capture.pcap", None),
        ("tcpdump.h1/capture.pcap.txt", None),
    ],
)
def test_which_files_of_a_host_are_captures(path, launch):
    assert capture_files.launch_of(path, ["tcpdump.h1"]) == launch


def test_what_is_sent_to_hosts_runs_alone(tmp_path):
    """With numpy and the standard library, and nothing of ours but what is in it."""
    captured(tmp_path)
    work = tmp_path / "captures"
    work.mkdir()
    (work / host_reduction.ARCHIVE).write_bytes(host_reduction.packed_code())
    told = points(tmp_path, "tcpdump.h1")
    argv = [sys.executable, "-B", host_reduction.ARCHIVE, str(told)]
    done = subprocess.run(argv, cwd=work, capture_output=True, text=True, check=False, env={"HOME": str(Path.home())})
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(path.name for path in work.iterdir()) == ["tcpdump.h1.json", "tcpdump.h1.npz"]
    assert not told.exists()
    names = zipfile.ZipFile(io.BytesIO(host_reduction.packed_code())).namelist()
    assert not [name for name in names if "/execution/" in name or "/store/" in name or "/agents/" in name]


def test_a_run_folder_is_cleared_but_for_what_is_kept(tmp_path):
    for name in ("a/keep", "a/drop", "b/drop", "marker"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "a/link").symlink_to(tmp_path / "marker")
    with Folder(os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY), str(tmp_path)) as folder:
        folder.clear(frozenset({"a/keep"}))
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == ["a", "a/keep"]


def test_where_captures_stay_in_words():
    manifest = manifests.made(
        stayed=[
            dataclasses.asdict(STAYED),
            dataclasses.asdict(dataclasses.replace(STAYED, path=STAYED.path + "1", sha256="")),
        ]
    )
    assert stayed.where(manifest) == ["h1: 2 files, 4 MB, in /w/r.h1, not all of them reduced"]


def test_captures_that_stay_are_dropped_by_age_alone(tmp_path):
    now = time.time_ns()
    folder = manifests.begun(
        tmp_path,
        "r",
        outcome="completed",
        began_ns=now - 10**12,
        ended_ns=now - 10**12,
        stayed=[dataclasses.asdict(STAYED)],
    )
    entry = Entry(folder.seal(), folder.manifest)
    assert retention.elsewhere(entry, retention.Policy(drop_after_s=500.0), now_ns=now) == [STAYED]
    assert retention.elsewhere(entry, retention.Policy(drop_after_s=5000.0), now_ns=now) == []
    assert retention.elsewhere(entry, retention.Policy(keep_bytes=0.0, compress_after_s=1.0), now_ns=now) == []
    lost = Entry(entry.path, dataclasses.replace(entry.manifest, given_up=(STAYED.node,)))
    assert retention.elsewhere(lost, retention.Policy(drop_after_s=500.0), now_ns=now) == [], (
        "what else it has is not home"
    )
    assert dropping.drop(lost, "old", []) == ([], [])
    retention.record_dropped(entry.path, [STAYED], "old")
    manifest = json.loads((entry.path / "manifest.json").read_bytes())
    assert (manifest["stayed"], [one["path"] for one in manifest["pruned"]]) == ([], [STAYED.path])


def test_captures_of_a_folder_that_is_damaged_are_told(tmp_path):
    lost = dataclasses.asdict(dataclasses.replace(STAYED, path="hosts/h9/tcpdump.h9/capture.pcap", node="h9"))
    folder = manifests.begun(tmp_path, outcome="completed", stayed=[lost])
    gone, failed = dropping.drop(Entry(folder.seal(), folder.manifest), "old", [])
    assert (gone, len(failed), failed[0].startswith("h9: 1 capture")) == ([], 1, True), failed
    assert "does not say what h9 is" in failed[0]


ELSEWHERE = """\
  inventory:
    link: 1gbit
    defaults: {python: /opt/python}
    hosts:
      h1: {ssh: h1, data: {address: 198.18.0.1/24, device: eth0}}
      h2: {ssh: h2, data: {address: 198.18.0.2/24, device: eth0}}
"""


def planned(tmp_path, text):
    (tmp_path / "e.yaml").write_text(text + "captures: {stay: true}\n")
    return orch("plan", str(tmp_path / "e.yaml"), "--json")


def test_hosts_that_keep_captures_need_what_reduces_them(tmp_path):
    _, out, err = planned(tmp_path, changed("  local: {hosts: 3, link: 1gbit, scale: 10}\n", ELSEWHERE))
    assert err == ""
    needs = json.loads(out)["runs"][0]["requirements"]
    assert {(need["node"], need["what"]) for need in needs if need["needed_by"] == "captures that stay"} == {
        (node, module) for node in ("h1", "h2") for module in ("python>=3.10", "numpy", "numba")
    }
    _, out, _ = planned(tmp_path, GOOD)  # hosts of this machine need nothing
    assert "captures that stay" not in out


def test_captures_that_nobody_makes_cannot_stay(tmp_path):
    status, _, err = planned(tmp_path, changed("collect: [tcpdump, nic]\n", ""))
    assert (status, "captures: nothing is captured; accepted: with `collect: [tcpdump]`" in err) == (2, True), err


FILE = RunFile("tcpdump.h1/capture.pcap", 2_000_000)


@pytest.mark.parametrize(
    ("folder", "there", "told"),
    [
        ("/w/r.h1", [FILE], ""),
        ("/w/r.h1", [], ""),
        ("/elsewhere/r.h1", [], "they lie in /w/r.h1, and it keeps this run in /elsewhere/r.h1"),
        ("/w/r.h1", [FILE, FILE._replace(path="x")], "its manifest does not record x in /w/r.h1 as it is"),
        ("/w/r.h1", [FILE._replace(bytes=3)], f"does not record {FILE.path} in /w/r.h1 as it is"),
    ],
)
def test_nothing_is_dropped_that_a_manifest_does_not_record_as_it_is(folder, there, told):
    """The folder of a run may be somebody else's, with the id of a run of one's own."""
    found = dropping._unlike(folder, there, [STAYED])
    assert (told in found, bool(found)) == (True, bool(told)), found
